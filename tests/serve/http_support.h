// SPDX-License-Identifier: MIT
// A raw socket to a server on this machine: what careful clients would never send.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace nibble::test {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(uint16_t(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&a), sizeof(a)), 0);
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(size_t(n));
    }
  }
  // What comes until `end` is in it, the other side closes, or nothing more comes.
  std::string receive(std::string_view end = "", int timeout_ms = 20000) {
    std::string out;
    char bytes[4096];
    for (;;) {
      if (!end.empty() && out.find(end) != out.npos) return out;
      pollfd p{socket_, POLLIN, 0};
      if (::poll(&p, 1, timeout_ms) <= 0) return out + "<nothing more came>";
      const ssize_t n = ::recv(socket_, bytes, sizeof(bytes), 0);
      if (n <= 0) return out;
      out.append(bytes, size_t(n));
    }
  }

 private:
  int socket_;
};

inline std::string post(const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace nibble::test
