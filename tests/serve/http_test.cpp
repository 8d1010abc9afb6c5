// SPDX-License-Identifier: MIT
// The server over real sockets: what it refuses before anything reads it, clients that are slow,
// leave or come in numbers, and how it ends.
#include "serve/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "serve/http_support.h"
#include "serve/mini_service.h"
#include "support/text.h"

namespace nibble::test {
namespace {

using Json = nlohmann::json;

HttpOptions any_port() {
  HttpOptions o;
  o.port = 0;
  o.idle_ms = 2000;
  o.head_ms = o.body_ms = 400;
  o.write_ms = 1000;
  o.connections = 8;
  return o;
}

ApiResponse echo(const ApiCall& call) {
  return {200, "text/plain", call.method + " " + call.path + " " + call.body, {}, {}};
}

std::string status_of(const std::string& answer) { return answer.substr(0, 12); }

std::string ask(int port, const std::string& text) {
  RawClient c(port);
  c.send(text);
  return c.receive();
}

TEST(Http, AnswersAndKeepsConnections) {
  HttpServer server(any_port(), echo);
  RawClient c(server.port());
  for (int i = 0; i < 5; ++i) {
    c.send(post("/x", "{\"a\": " + std::to_string(i) + "}"));
    const std::string end = "POST /x {\"a\": " + std::to_string(i) + "}";
    EXPECT_TRUE(c.receive(end).ends_with(end));
  }
  // Two at once, and one in pieces.
  c.send(post("/a", "1") + post("/b", "2"));
  EXPECT_TRUE(contains(c.receive("POST /b 2"), "POST /a 1"));
  const std::string slow = post("/c", "3");
  for (const char ch : slow) c.send(std::string_view(&ch, 1));
  EXPECT_TRUE(contains(c.receive("POST /c 3"), "200 OK"));
  // What would have the library act is left out.
  c.send(
      "GET /long HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1\r\nAccept-Encoding: gzip\r\n\r\n");
  const std::string r = c.receive("GET /long ");
  EXPECT_EQ(status_of(r), "HTTP/1.1 200");
  EXPECT_FALSE(contains(r, "Content-Encoding"));
  EXPECT_TRUE(contains(r, "X-Content-Type-Options: nosniff"));
  EXPECT_TRUE(contains(r, "Content-Security-Policy: default-src 'none'"));
}

// A page brings a policy of its own, and there is one: two would both be obeyed.
TEST(Http, AnAnswersOwnHeadersReplaceOurs) {
  HttpServer server(any_port(), [](const ApiCall&) {
    return ApiResponse{
        200, "text/html", "x", {{"Content-Security-Policy", "script-src 'self'"}}, {}};
  });
  const std::string r =
      ask(server.port(), "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(contains(r, "\r\nContent-Security-Policy: script-src 'self'\r\n")) << r;
  EXPECT_FALSE(contains(r, "default-src")) << r;
  EXPECT_TRUE(contains(r, "X-Content-Type-Options: nosniff")) << r;
}

TEST(Http, RefusesBeforeItReads) {
  HttpServer server(any_port(), echo);
  const int port = server.port();
  EXPECT_EQ(status_of(ask(port, "garbage\r\n\r\n")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask(port, "\x16\x03\x01\r\n\r\n")), "HTTP/1.1 400");  // TLS, say
  EXPECT_EQ(status_of(ask(port, "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n")), "HTTP/1.1 405");
  EXPECT_TRUE(contains(ask(port, "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "\r\nAllow: GET"));
  EXPECT_EQ(status_of(ask(port, "GET / HTTP/1.1\r\n\r\n")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask(port, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")), "HTTP/1.1 403");
  EXPECT_EQ(status_of(ask(
                port, "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n")),
            "HTTP/1.1 403");
  EXPECT_EQ(status_of(ask(port, "GET / HTTP/1.1\r\nHost: localhost\r\nA: " +
                                    std::string(40000, 'a') + "\r\n\r\n")),
            "HTTP/1.1 431");
  EXPECT_EQ(status_of(ask(port,
                          "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          "Content-Length: 99999999999\r\n\r\n")),
            "HTTP/1.1 413");
  EXPECT_EQ(status_of(ask(port,
                          "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            "HTTP/1.1 411");
  EXPECT_EQ(status_of(ask(port,
                          "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
                          "Content-Length: 2\r\n\r\n{}")),
            "HTTP/1.1 415");
  const std::string r = ask(port, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  const Json body = parse_json<Json>(r.substr(r.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["error"]["code"], "host_not_allowed");
  // The next one is not disturbed.
  EXPECT_TRUE(contains(ask(port, "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
                       "GET /x "));
}

TEST(Http, SlowClientsAreNotWaitedFor) {
  HttpServer server(any_port(), echo);
  const auto begin = std::chrono::steady_clock::now();
  RawClient head(server.port()), body(server.port());
  head.send("GET / HT");
  body.send(
      "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n{");
  // A byte now and then does not help: the limit is for the whole.
  std::thread drip([&] {
    for (int i = 0; i < 10; ++i) {
      body.send(" ");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  EXPECT_EQ(status_of(head.receive()), "HTTP/1.1 408");
  const std::string answer = body.receive();
  EXPECT_FALSE(contains(answer, "200 OK"));
  drip.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Http, MoreConnectionsThanAllowedAreTold) {
  HttpOptions o = any_port();
  o.connections = 2;
  HttpServer server(o, echo);
  RawClient a(server.port()), b(server.port());
  a.send(post("/a", "1"));
  b.send(post("/b", "1"));
  a.receive("POST /a 1");
  b.receive("POST /b 1");
  RawClient c(server.port());
  EXPECT_EQ(status_of(c.receive()), "HTTP/1.1 503");
  a.close();
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    RawClient d(server.port());
    d.send("GET /d HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if (contains(d.receive(), "GET /d ")) return;
  }
  FAIL() << "the place is not given back";
}

TEST(Http, KeysAndCors) {
  HttpOptions o = any_port();
  o.gate = {"0123456789abcdef", {}, {"https://example.org"}};
  HttpServer server(o, echo);
  const std::string head = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  const std::string none = ask(server.port(), head + "\r\n");
  EXPECT_EQ(status_of(none), "HTTP/1.1 401");
  EXPECT_TRUE(contains(none, "WWW-Authenticate: Bearer"));
  const std::string key = "Authorization: Bearer 0123456789abcdef\r\n";
  EXPECT_EQ(status_of(ask(server.port(), head + key + "\r\n")), "HTTP/1.1 200");
  const std::string cors = ask(server.port(), head + key + "Origin: https://example.org\r\n\r\n");
  EXPECT_TRUE(contains(cors, "Access-Control-Allow-Origin: https://example.org\r\n"));
  const std::string asked = ask(server.port(),
                                "OPTIONS /x HTTP/1.1\r\nHost: localhost\r\n"
                                "Origin: https://example.org\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(asked), "HTTP/1.1 204");
  EXPECT_TRUE(contains(asked, "Access-Control-Allow-Headers: Authorization"));
}

TEST(Http, OpenAddressesNeedAKeyAndPortsAreNotShared) {
  HttpOptions o = any_port();
  o.host = "0.0.0.0";
  EXPECT_THROW(HttpServer(o, echo), UsageError);
  o.gate.api_key = "0123456789abcdef";
  HttpServer open(o, echo);
  o.port = open.port();
  EXPECT_THROW(HttpServer(o, echo), UsageError);
}

TEST(Http, LeavingIsNoticed) {
  std::atomic<int> left{0};
  HttpServer server(any_port(), [&](const ApiCall& call) {
    ApiResponse r{200, "text/event-stream", "", {}, {}};
    if (call.path == "/whole") {
      while (!call.gone()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++left;
      return r;
    }
    const auto token = std::shared_ptr<int>(new int, [&](int* p) {
      ++left;
      delete p;
    });
    r.next = [token](std::string& out) {
      out = "data: x\n\n";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return true;
    };
    return r;
  });
  for (const char* path : {"/whole", "/stream"}) {
    RawClient c(server.port());
    c.send(post(path, "{}"));
    if (path[1] == 's') c.receive("data: x");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (int i = 0; i < 500 && left < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(left, 2);
}

// Many at once over sockets say what generate says; the server ends while some are on their way.
TEST(Http, ManyClientsAndAnOrderlyEnd) {
  MiniService mini(4);
  HttpOptions o = any_port();
  o.connections = 64;
  o.body_ms = o.head_ms = 20000;
  auto server = std::make_unique<HttpServer>(
      o, [&](const ApiCall& call) { return mini.service.answer(call); });
  const std::vector<std::string> questions = {"Hello", "Who are you?", "What is 2 + 3?",
                                              "Tell me a story"};
  std::vector<std::string> want;
  for (const std::string& q : questions) want.push_back(mini.chat_text(q));
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      RawClient c(server->port());
      for (int k = 0; k < 4; ++k) {
        const size_t q = size_t(i + k) % questions.size();
        const Json body = {{"messages", {{{"role", "user"}, {"content", questions[q]}}}}};
        if ((i + k) % 5 == 4) {  // one that leaves, and one that is wrong
          RawClient rude(server->port());
          rude.send(post("/v1/chat/completions", body.dump()));
          rude.close();
          EXPECT_TRUE(
              contains(ask(server->port(), post("/v1/completions", "{]", "Connection: close\r\n")),
                       "400 Bad Request"));
        }
        c.send(post("/v1/chat/completions", body.dump()));
        const std::string r = c.receive("}}}");
        const size_t at = r.find("\r\n\r\n");
        ASSERT_NE(at, r.npos) << r;
        EXPECT_EQ(parse_json<Json>(r.substr(at + 4))["choices"][0]["message"]["content"], want[q]);
      }
    });
  }
  for (std::thread& t : clients) t.join();

  RawClient stream(server->port());
  stream.send(
      post("/v1/completions",
           R"({"prompt": "Hello", "max_tokens": 900, "ignore_eos": true, "stream": true})"));
  stream.receive("data: ");
  server->close();
  mini.thread.reset();
  server.reset();
  const std::string rest = stream.receive();
  EXPECT_TRUE(contains(rest, "data: [DONE]\n\n"))
      << rest.substr(rest.size() - std::min<size_t>(300, rest.size()));
  EXPECT_TRUE(rest.ends_with("0\r\n\r\n"));
  EXPECT_EQ(mini.scheduler.counts().decoding, 0);
}

}  // namespace
}  // namespace nibble::test
