// SPDX-License-Identifier: MIT
// cpp-httplib's server behind our connections: its parser sees a request when its head was judged.
#pragma once
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>

#include "serve/http/connection.h"
#include "serve/http/http_server.h"

namespace nibble {

class LibraryServer final : public httplib::Server {
 public:
  LibraryServer(const HttpOptions& options, HttpServer::Answer answer);

  void listen_on(const std::string& host, int port);  // UsageError
  int port() const { return port_; }
  void run();  // until finish()
  void wait_until_running() const;
  void close() { closing_ = true; }
  // Waits for answers that are being given, `at_most` so long, and ends run().
  void finish(std::chrono::milliseconds at_most);

 private:
  bool process_and_close_socket(socket_t socket) override;
  // Answers one request; false: it was the connection's last.
  bool serve_one(Connection& connection, bool first);
  void refuse(Connection& connection, const ApiError& error);
  void answer(const httplib::Request& request, httplib::Response& response);
  void set_headers(httplib::Response& response) const;

  HttpOptions options_;
  Gate gate_;
  HttpServer::Answer answer_;
  std::atomic<bool> closing_{false}, ended_{false};
  std::atomic<int> answering_{0};
  int port_ = 0;
  std::mutex mutex_;
  std::set<int> open_;  // sockets
};

}  // namespace nibble
