// SPDX-License-Identifier: MIT
// The server of a build without cpp-httplib.
#include "core/error.h"
#include "serve/http/http_server.h"

namespace nibble {

class HttpServer::Impl {};

HttpServer::HttpServer(const HttpOptions&, Answer) {
  throw_usage(
      "this nibble was built without a server, because cpp-httplib was not there; install it "
      "(Debian and Ubuntu: libcpp-httplib-dev) and build again");
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return 0; }
std::string HttpServer::url() const { return {}; }
void HttpServer::close() {}

}  // namespace nibble
