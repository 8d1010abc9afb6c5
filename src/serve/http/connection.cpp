// SPDX-License-Identifier: MIT
#include "serve/http/connection.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace nibble {
namespace {

void name_of(const sockaddr_storage& address, std::string& ip, int& port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &a->sin_addr, text, sizeof(text));
    port = ntohs(a->sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto* a = reinterpret_cast<const sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof(text));
    port = ntohs(a->sin6_port);
  }
  ip = text;
}

}  // namespace

Connection::~Connection() { ::close(socket_); }

bool Connection::wait(short events, Clock::time_point until) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd p{socket_, events, 0};
    const int n = ::poll(&p, 1, int(std::max<int64_t>(0, left.count())));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

ssize_t Connection::receive(Clock::time_point until) {
  char bytes[16 << 10];
  for (;;) {
    if (!wait(POLLIN, until)) return -1;
    const ssize_t n = ::recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n > 0) buffer_.append(bytes, size_t(n));
    return n;
  }
}

std::string Connection::read_head(const HeadLimits& limits, const std::atomic<bool>& closing) {
  const auto idle_end = Clock::now() + times_.idle;
  while (buffer_.empty()) {
    if (closing || Clock::now() >= idle_end) return "";
    const auto slice = Clock::now() + std::chrono::milliseconds(100);
    if (!wait(POLLIN, slice)) continue;
    if (receive(slice) <= 0) return "";
  }
  const auto end = Clock::now() + times_.head;
  for (size_t looked = 0;;) {
    const size_t at = buffer_.find("\r\n\r\n", looked);
    if (at != buffer_.npos && at + 4 <= limits.bytes) {
      std::string head = buffer_.substr(0, at + 4);
      buffer_.erase(0, at + 4);
      return head;
    }
    if (buffer_.size() > limits.bytes) {
      throw ApiError(431, "invalid_request_error",
                     fmt::format("the headers have more than {} bytes", limits.bytes));
    }
    looked = buffer_.size() < 3 ? 0 : buffer_.size() - 3;
    const ssize_t n = receive(end);
    if (n == 0) return "";
    if (n < 0) throw ApiError(408, "invalid_request_error", "the headers came too slowly");
  }
}

void Connection::begin(std::string head, uint64_t body) {
  head_ = std::move(head);
  head_at_ = 0;
  body_left_ = body;
  body_end_ = Clock::now() + times_.body;
}

bool Connection::gone() const {
  char byte = 0;
  const ssize_t n = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

// Closing with unread bytes makes the kernel reset the connection, and the answer is lost with it.
void Connection::close_gently() {
  ::shutdown(socket_, SHUT_WR);
  // A body that was refused for its length is still being sent: time bounds this, not bytes.
  const auto end = Clock::now() + std::chrono::seconds(2);
  while (Clock::now() < end) {
    buffer_.clear();
    if (receive(end) <= 0) return;
  }
}

bool Connection::is_readable() const {
  return head_at_ < head_.size() || !buffer_.empty() || wait(POLLIN, body_end_);
}

bool Connection::is_writable() const { return wait(POLLOUT, Clock::now() + times_.write); }

ssize_t Connection::read(char* to, size_t size) {
  if (head_at_ < head_.size()) {
    const size_t n = std::min(size, head_.size() - head_at_);
    std::memcpy(to, head_.data() + head_at_, n);
    head_at_ += n;
    return ssize_t(n);
  }
  // Never beyond the body: what follows is another request's.
  const auto n = size_t(std::min<uint64_t>(size, body_left_));
  if (n == 0) return 0;
  if (buffer_.empty()) {
    if (const ssize_t got = receive(body_end_); got <= 0) return got;
  }
  const size_t take = std::min(n, buffer_.size());
  std::memcpy(to, buffer_.data(), take);
  buffer_.erase(0, take);
  body_left_ -= take;
  return ssize_t(take);
}

ssize_t Connection::write(const char* from, size_t size) {
  const auto end = Clock::now() + times_.write;
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = ::send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += size_t(n);
    } else if ((errno != EAGAIN && errno != EINTR) || !wait(POLLOUT, end)) {
      return -1;
    }
  }
  return ssize_t(size);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    name_of(address, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    name_of(address, ip, port);
}

}  // namespace nibble
