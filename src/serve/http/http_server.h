// SPDX-License-Identifier: MIT
// The server: listens, judges what comes (request_head, gate), and gives it to the API.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "serve/api/api_call.h"
#include "serve/http/gate.h"
#include "serve/http/request_head.h"

namespace nibble {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  GateOptions gate;
  HeadLimits limits;
  size_t connections = 512;
  int idle_ms = 30000, head_ms = 10000, body_ms = 60000, write_ms = 30000;
};

class HttpServer {
 public:
  using Answer = std::function<ApiResponse(const ApiCall&)>;

  // Listens from here on. UsageError where the address cannot be had, or would be open to others
  // without a key.
  HttpServer(const HttpOptions& options, Answer answer);
  ~HttpServer();  // ends every connection and waits for their threads

  int port() const;
  std::string url() const;
  // Idle connections are closed and answers are the last of theirs; what runs goes on.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
