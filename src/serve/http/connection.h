// SPDX-License-Identifier: MIT
// A client's socket as cpp-httplib reads and writes it, with limits of time: one for a request's
// head, one for its body, one for each piece of the answer that is not taken. Owns the socket.
#pragma once
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <string>

#include "serve/http/request_head.h"

namespace nibble {

struct ConnectionTimes {
  std::chrono::milliseconds idle{30000};  // between requests
  std::chrono::milliseconds head{10000}, body{60000}, write{30000};
};

class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const ConnectionTimes& times) : socket_(socket), times_(times) {}
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The bytes of the next request up to its empty line; "" when none comes. ApiError for one that
  // is too long or too slow. `closing`: nothing more is read from an idle connection.
  std::string read_head(const HeadLimits& limits, const std::atomic<bool>& closing);
  // What is read from now on: these bytes, and a body of this length.
  void begin(std::string head, uint64_t body);
  bool body_was_read() const { return head_at_ == head_.size() && body_left_ == 0; }
  // The other side has closed.
  bool gone() const;
  // Says that nothing follows and waits a little for the other side to have read it.
  void close_gently();

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  using Stream::write;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::time_point until) const;
  ssize_t receive(Clock::time_point until);  // more into buffer_

  int socket_;
  ConnectionTimes times_;
  std::string buffer_;  // received and not asked for
  std::string head_;    // given out first
  size_t head_at_ = 0;
  uint64_t body_left_ = 0;
  Clock::time_point body_end_;
};

}  // namespace nibble
