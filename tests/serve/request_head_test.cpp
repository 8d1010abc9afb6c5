// SPDX-License-Identifier: MIT
// Request lines and headers: what is read, and what is refused with which status.
#include "serve/http/request_head.h"

#include <gtest/gtest.h>

namespace nibble::test {
namespace {

int refused(const std::string& text, HeadLimits limits = {}) {
  try {
    parse_request_head(text, limits);
    return 0;
  } catch (const ApiError& e) {
    return e.status();
  }
}

std::string get(const std::string& headers, const std::string& line = "GET /health HTTP/1.1") {
  return line + "\r\n" + headers + "\r\n";
}

TEST(RequestHead, ReadsWhatClientsSend) {
  const RequestHead h = parse_request_head(
      "POST /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nContent-LENGTH: 12\r\nX:\t v \r\n"
      "Range: bytes=0-1\r\nAccept-Encoding: gzip\r\n\r\n",
      {});
  EXPECT_EQ(h.method, "POST");
  EXPECT_EQ(h.path(), "/v1/models");
  EXPECT_EQ(h.content_length, 12u);
  EXPECT_EQ(*h.find("x"), "v");
  EXPECT_EQ(h.find("y"), nullptr);
  EXPECT_EQ(h.forwarded(),
            "POST /v1/models?x=1 HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\nx: v\r\n\r\n");
}

TEST(RequestHead, RefusesWhatCouldBeReadInTwoWays) {
  EXPECT_EQ(refused(get("")), 0);
  for (const char* line :
       {"GET", "GET /", "GET  HTTP/1.1", "GET health HTTP/1.1", "GET /a b HTTP/1.1",
        "GET /\x01 HTTP/1.1", "G@T / HTTP/1.1", " GET / HTTP/1.1", ""}) {
    const int status = refused(get("", line));
    EXPECT_TRUE(status == 400 || status == 505) << line << ": " << status;
  }
  EXPECT_EQ(refused(get("", "GET / HTTP/2.0")), 505);
  EXPECT_EQ(refused(get("", "DELETE / HTTP/1.1")), 405);
  EXPECT_EQ(refused(get("", "GET /" + std::string(2000, 'a') + " HTTP/1.1")), 414);
  for (const char* header :
       {"Host a", ": b", "Ho st: a", "Host : a", " Host: a", "A: \x01", "\n: a"}) {
    EXPECT_EQ(refused(get(std::string(header) + "\r\n")), 400) << header;
  }
  EXPECT_EQ(refused(get(std::string("A: b\0c\r\n", 8))), 400);
  EXPECT_EQ(refused(get("Transfer-Encoding: chunked\r\n")), 411);
  EXPECT_EQ(refused(get("Content-Encoding: gzip\r\n")), 415);
  EXPECT_EQ(refused(get("Expect: magic\r\n")), 417);
  EXPECT_EQ(refused(get("Content-Length: 3\r\n")), 400);  // of a GET
  const std::string p = "POST / HTTP/1.1";
  EXPECT_EQ(refused(get("", p)), 411);
  for (const char* n : {"-1", "+1", "1 ", "0x1", "1,1", "", "99999999999999999999"}) {
    const int status = refused(get("Content-Length: " + std::string(n) + "\r\n", p));
    EXPECT_EQ(status, std::string_view(n) == "1 " ? 0 : 400) << n;
  }
  EXPECT_EQ(refused(get("Content-Length: 1\r\nContent-Length: 1\r\n", p)), 400);
  EXPECT_EQ(refused(get("Content-Length: 99999999999\r\n", p)), 413);
  EXPECT_EQ(refused("GET / HTTP/1.1\r\nA: b\r\n"), 400);  // no end
}

TEST(RequestHead, CountsHeaders) {
  std::string many;
  for (int i = 0; i < 100; ++i) many += "a: b\r\n";
  EXPECT_EQ(refused(get(many)), 0);
  EXPECT_EQ(refused(get(many + "a: b\r\n")), 431);
}

}  // namespace
}  // namespace nibble::test
