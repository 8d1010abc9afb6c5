// SPDX-License-Identifier: MIT
// Who may ask: names, pages, keys.
#include "serve/http/gate.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

int refused(const Gate& gate, const std::string& headers,
            const std::string& line = "GET /x HTTP/1.1") {
  try {
    gate.check(parse_request_head(line + "\r\n" + headers + "\r\n", {}));
    return 0;
  } catch (const ApiError& e) {
    return e.status();
  }
}

// A page of evil.example whose name was made to point at 127.0.0.1.
TEST(Gate, NamesThatAreNotOursAreRefused) {
  const Gate gate({"", {"model.lan"}, {}});
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "10.0.0.7", "[::1]:80",
                           "model.lan", "Model.lan:8080"}) {
    EXPECT_EQ(refused(gate, "Host: " + std::string(host) + "\r\n"), 0) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example",
                           "127.0.0.1.evil.example", "", "model.lan.", "[::1", "1.2.3"}) {
    const int status = refused(gate, "Host: " + std::string(host) + "\r\n");
    EXPECT_EQ(status, std::string_view(host) == "[::1" ? 0 : 403) << host;
  }
  EXPECT_EQ(refused(gate, ""), 400);
  EXPECT_EQ(refused(gate, "Host: localhost\r\nHost: localhost\r\n"), 400);
}

TEST(Gate, PagesOfOtherSitesAreRefused) {
  const Gate gate({"", {}, {"https://example.org"}});
  const std::string host = "Host: localhost:8080\r\n";
  EXPECT_EQ(refused(gate, host + "Origin: http://localhost:8080\r\n"), 0);
  EXPECT_EQ(refused(gate, host + "Origin: https://example.org\r\n"), 0);
  for (const char* origin :
       {"null", "http://localhost", "http://localhost:8081", "http://evil.example",
        "https://example.org.evil.example", "https://example.org:8080", ""}) {
    EXPECT_EQ(refused(gate, host + "Origin: " + origin + "\r\n"), 403) << origin;
  }
  const auto head =
      parse_request_head("GET / HTTP/1.1\r\n" + host + "Origin: https://example.org\r\n\r\n", {});
  EXPECT_EQ(gate.allowed_origin(head), "https://example.org");
}

TEST(Gate, AKeyIsAskedForWhereThereIsOne) {
  const Gate gate({"0123456789abcdef", {}, {}});
  const std::string host = "Host: localhost\r\n";
  EXPECT_EQ(refused(gate, host), 401);
  EXPECT_EQ(refused(gate, host + "Authorization: Bearer 0123456789abcdef\r\n"), 0);
  EXPECT_EQ(refused(gate, host + "authorization: bearer 0123456789abcdef\r\n"), 0);
  for (const char* key :
       {"Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer ", "Bearer",
        "Bearer 0123456789abcdef0", "Basic 0123456789abcdef", "0123456789abcdef"}) {
    EXPECT_EQ(refused(gate, host + "Authorization: " + key + "\r\n"), 401) << key;
  }
  EXPECT_EQ(refused(gate, host, "GET /health HTTP/1.1"), 0);
  EXPECT_EQ(refused(gate, host, "GET /health/x HTTP/1.1"), 401);
}

TEST(Gate, Secrets) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abcabc", "abc"));
  EXPECT_FALSE(same_secret("abc", ""));
  EXPECT_FALSE(same_secret("", "abc"));
  EXPECT_TRUE(is_loopback("127.3.2.1"));
  EXPECT_TRUE(is_loopback("LocalHost"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("127.0.0.1.evil.example"));
  EXPECT_FALSE(is_loopback("::"));
}

}  // namespace
}  // namespace nibble::test
