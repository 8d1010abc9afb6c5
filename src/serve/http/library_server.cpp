// SPDX-License-Identifier: MIT
#include "serve/http/library_server.h"

#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "serve/http/connection_threads.h"

namespace nibble {
namespace {

// A handler is called on the thread of its connection and is not told which that is.
thread_local Connection* t_connection = nullptr;
thread_local std::string t_origin;  // that may read the answer

const char* reason_of(int status) {
  switch (status) {
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Payload Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
  }
  return "Refused";
}

constexpr auto kPing = std::chrono::seconds(15);

ConnectionTimes times_of(const HttpOptions& o) {
  using Ms = std::chrono::milliseconds;
  return {Ms(o.idle_ms), Ms(o.head_ms), Ms(o.body_ms), Ms(o.write_ms)};
}

// A stream of events as the library asks for it. A word now and then keeps proxies from believing
// that nobody is there, and shows us that the reader is.
auto provider(std::function<bool(std::string&)> next, Connection* connection) {
  return [next = std::move(next), connection, last = std::chrono::steady_clock::now()](
             size_t, httplib::DataSink& sink) mutable {
    std::string out;
    const bool more = next(out);
    const auto now = std::chrono::steady_clock::now();
    if (out.empty() && more && now - last > kPing) out = ": waiting\n\n";
    if (!out.empty()) {
      last = now;
      if (!sink.write(out.data(), out.size())) return false;
    }
    if (!more) sink.done();
    return !more || !connection->gone();
  };
}

}  // namespace

LibraryServer::LibraryServer(const HttpOptions& options, HttpServer::Answer answer)
    : options_(options), gate_(options.gate), answer_(std::move(answer)) {
  new_task_queue = [this] { return new ConnectionThreads(options_.connections); };
  // Not SO_REUSEPORT, the library's own choice: two servers would share a port unawares.
  set_socket_options([](socket_t s) {
    const int yes = 1;
    ::setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  set_tcp_nodelay(true);
  set_payload_max_length(options.limits.body);
  set_keep_alive_timeout(time_t(options.idle_ms / 1000));
  set_keep_alive_max_count(10000);
  const auto handler = [this](const httplib::Request& q, httplib::Response& r) {
    this->answer(q, r);
  };
  Get(".*", handler);
  Post(".*", handler);
  Options(".*", handler);
  // What the library itself refuses.
  set_error_handler([](const httplib::Request&, httplib::Response& r) {
    if (!r.body.empty() || r.status == 499) return;
    r.set_content(
        ApiError(r.status, "invalid_request_error", "the request could not be read").body(),
        "application/json");
  });
}

void LibraryServer::listen_on(const std::string& host, int port) {
  errno = 0;
  port_ = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
  if (port_ < 0) {
    throw_usage("listening on {} port {}: {}; --port names another, and 0 takes any that is free",
                host, port, errno ? std::strerror(errno) : "the address is not of this machine");
  }
  ::listen(svr_sock_, 512);  // the library asks for 5
}

void LibraryServer::run() {
  listen_after_bind();
  ended_ = true;
}

void LibraryServer::wait_until_running() const {
  while (!is_running() && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void LibraryServer::finish(std::chrono::milliseconds at_most) {
  closing_ = true;
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (answering_ > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  {
    // Whoever is in the middle of a request, or has not sent one, is not waited for.
    const std::lock_guard lock(mutex_);
    for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
  }
  stop();
}

void LibraryServer::set_headers(httplib::Response& r) const {
  r.set_header("X-Content-Type-Options", "nosniff");
  r.set_header("Cache-Control", "no-store");
  r.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
  if (!t_origin.empty()) {
    r.set_header("Access-Control-Allow-Origin", t_origin);
    r.set_header("Vary", "Origin");
  }
}

void LibraryServer::answer(const httplib::Request& q, httplib::Response& r) {
  set_headers(r);
  if (q.method == "OPTIONS") {
    r.status = 204;
    r.set_header("Access-Control-Allow-Methods", "GET, POST");
    r.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type");
    r.set_header("Access-Control-Max-Age", "600");
    return;
  }
  Connection* const connection = t_connection;
  ApiCall call{q.method == "HEAD" ? "GET" : q.method, q.path, q.body,
               [connection] { return connection->gone(); }};
  ApiResponse a = answer_(call);
  r.status = a.status;
  for (const auto& [name, value] : a.headers) {
    r.headers.erase(name);  // instead of ours: the page has a policy of its own
    r.set_header(name, value);
  }
  if (!a.next) {
    r.set_content(a.body, a.content_type);
  } else if (q.version == "HTTP/1.0") {
    r.set_content_provider(a.content_type, provider(std::move(a.next), connection));
  } else {
    r.set_chunked_content_provider(a.content_type, provider(std::move(a.next), connection));
  }
  log_debug("{} {}: {}", q.method, q.path, r.status);
}

void LibraryServer::refuse(Connection& c, const ApiError& e) {
  const std::string body = e.body();
  std::string out = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n",
      e.status(), reason_of(e.status()), body.size());
  if (e.status() == 405) out += "Allow: GET, HEAD, POST, OPTIONS\r\n";
  if (e.status() == 401) out += "WWW-Authenticate: Bearer\r\n";
  if (e.retry_after_s > 0) out += fmt::format("Retry-After: {}\r\n", e.retry_after_s);
  out += "\r\n" + body;
  log_debug("refused: {} {}", e.status(), e.what());
  c.write(out.data(), out.size());
}

bool LibraryServer::serve_one(Connection& c, bool first) {
  try {
    // Who has only just come is told that the server ends; who is idle is not waited for.
    static const std::atomic<bool> kNever{false};
    const std::string text = c.read_head(options_.limits, first ? kNever : closing_);
    if (text.empty()) return false;
    const RequestHead head = parse_request_head(text, options_.limits);
    gate_.check(head);
    if (head.content_length > 0) {
      // A form of another site can post, too, but not this.
      const std::string* const type = head.find("content-type");
      if (!type || !type->starts_with("application/json")) {
        throw ApiError(415, "invalid_request_error",
                       "a body is JSON here: send 'Content-Type: application/json'");
      }
    }
    t_origin = gate_.allowed_origin(head);
    c.begin(head.forwarded(), head.content_length);
  } catch (const ApiError& e) {
    refuse(c, e);
    c.close_gently();
    return false;
  }
  bool closed = false;
  ++answering_;
  const bool sound = process_request(c, closing_, closed, nullptr);
  --answering_;
  return sound && !closed && !closing_ && c.body_was_read();
}

bool LibraryServer::process_and_close_socket(socket_t socket) {
  ConnectionTimes times = times_of(options_);
  const bool full = ConnectionThreads::full();
  if (full) times.write = std::chrono::milliseconds(0);  // others wait to be accepted
  Connection connection(socket, times);
  if (full) {
    ApiError error(
        503, "server_error",
        fmt::format("{} connections are open, which is the limit", options_.connections));
    error.retry_after_s = 1;
    refuse(connection, error);
    ::shutdown(socket, SHUT_RDWR);
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    open_.insert(socket);
  }
  t_connection = &connection;
  try {
    for (bool first = true; serve_one(connection, first); first = false) continue;
  } catch (const std::exception& e) {
    log_warning("a connection failed: {}", e.what());
  }
  t_connection = nullptr;
  {
    const std::lock_guard lock(mutex_);
    open_.erase(socket);
  }
  ::shutdown(socket, SHUT_RDWR);
  return true;
}

}  // namespace nibble
