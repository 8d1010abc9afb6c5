// SPDX-License-Identifier: MIT
#include "serve/http/request_head.h"

#include <algorithm>
#include <charconv>

namespace nibble {
namespace {

[[noreturn]] void refuse(int status, const std::string& message) {
  throw ApiError(status, "invalid_request_error", message);
}

bool is_token(std::string_view s) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !s.empty() && std::ranges::all_of(s, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != kMarks.npos;
  });
}

bool is_printable(std::string_view s) {  // a target: no blanks, no bytes above ASCII
  return !s.empty() && std::ranges::all_of(s, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_value(std::string_view s) {
  return std::ranges::all_of(s,
                             [](char c) { return c == '\t' || (uint8_t(c) >= 0x20 && c != 0x7f); });
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
  return out;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

void parse_line(std::string_view line, RequestHead& head, const HeadLimits& limits) {
  const size_t a = line.find(' '), b = line.rfind(' ');
  if (a == line.npos || b == a) refuse(400, "the request line is not 'METHOD TARGET VERSION'");
  head.method = line.substr(0, a);
  head.target = line.substr(a + 1, b - a - 1);
  head.version = line.substr(b + 1);
  if (head.version != "HTTP/1.1" && head.version != "HTTP/1.0")
    refuse(505, "HTTP/1.1 is spoken here");
  if (head.target.size() > limits.target) refuse(414, "the request's address is too long");
  if (!is_token(head.method) || !is_printable(head.target) || head.target[0] != '/') {
    refuse(400, "the request line is not 'METHOD TARGET VERSION' with a target that begins with /");
  }
  for (const char* m : {"GET", "HEAD", "POST", "OPTIONS"}) {
    if (head.method == m) return;
  }
  refuse(405, "GET, HEAD, POST and OPTIONS are known here");
}

void check_body(RequestHead& head, const HeadLimits& limits) {
  // One way to say how long a body is: two could disagree.
  if (head.count("transfer-encoding") > 0)
    refuse(411, "a body needs a Content-Length here; Transfer-Encoding is not read");
  if (const std::string* e = head.find("content-encoding"); e && lower(*e) != "identity")
    refuse(415, "compressed bodies are not read: send it as it is");
  if (const std::string* e = head.find("expect"); e && lower(*e) != "100-continue")
    refuse(417, "Expect can be 100-continue only");
  if (const std::string* length = head.find("content-length")) {
    const char* const end = length->data() + length->size();
    const auto [ptr, ec] = std::from_chars(length->data(), end, head.content_length);
    if (ec != std::errc() || ptr != end || head.count("content-length") > 1)
      refuse(400, "Content-Length is not one whole number");
  } else if (head.method == "POST") {
    refuse(411, "a POST needs a Content-Length");
  }
  if (head.content_length > limits.body) {
    refuse(413, fmt::format("the body has {} bytes, and {} is the limit", head.content_length,
                            limits.body));
  }
  if (head.method != "POST" && head.content_length > 0) refuse(400, "only a POST has a body here");
}

}  // namespace

const std::string* RequestHead::find(std::string_view name) const {
  const auto at = std::ranges::find(headers, name, [](const auto& h) { return h.first; });
  return at == headers.end() ? nullptr : &at->second;
}

size_t RequestHead::count(std::string_view name) const {
  return size_t(std::ranges::count(headers, name, [](const auto& h) { return h.first; }));
}

std::string_view RequestHead::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string RequestHead::forwarded() const {
  std::string out = method + " " + target + " " + version + "\r\n";
  for (const auto& [name, value] : headers) {
    const bool unwanted = name == "range" || name == "if-range" || name == "accept-encoding";
    if (!unwanted) out += name + ": " + value + "\r\n";
  }
  return out + "\r\n";
}

RequestHead parse_request_head(std::string_view text, const HeadLimits& limits) {
  RequestHead head;
  for (bool first = true;; first = false) {
    const size_t end = text.find("\r\n");
    if (end == text.npos) refuse(400, "the headers do not end with an empty line");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (first) {
      parse_line(line, head, limits);
      continue;
    }
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == line.npos || !is_token(line.substr(0, colon)) || !is_value(line)) {
      refuse(400, "a header is not 'Name: value'");
    }
    if (head.headers.size() >= limits.headers)
      refuse(431, fmt::format("more than {} headers", limits.headers));
    head.headers.emplace_back(lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
  check_body(head, limits);
  return head;
}

}  // namespace nibble
