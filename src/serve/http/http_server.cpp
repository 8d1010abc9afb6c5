// SPDX-License-Identifier: MIT
#include "serve/http/http_server.h"

#include <thread>

#include "core/error.h"
#include "serve/http/library_server.h"

namespace nibble {

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Answer answer)
      : host(options.host), server(options, std::move(answer)) {
    if (!is_loopback(host) && options.gate.api_key.empty()) {
      throw_usage(
          "--host {} is open to other machines, and without a key anybody there could use this "
          "one: give --api-key-file FILE or set NIBBLE_API_KEY, or leave --host out",
          host);
    }
    server.listen_on(host, options.port);
    thread = std::thread([this] { server.run(); });
    server.wait_until_running();
  }
  ~Impl() {
    server.finish(std::chrono::seconds(5));
    thread.join();
  }

  std::string host;
  LibraryServer server;
  std::thread thread;
};

HttpServer::HttpServer(const HttpOptions& options, Answer answer)
    : impl_(std::make_unique<Impl>(options, std::move(answer))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->server.port(); }

std::string HttpServer::url() const {
  const bool v6 = impl_->host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", impl_->host, v6 ? "]" : "", port());
}

void HttpServer::close() { impl_->server.close(); }

}  // namespace nibble
