// SPDX-License-Identifier: MIT
#include "serve/http/gate.h"

#include <arpa/inet.h>

#include <algorithm>

#include "serve/http/request_head.h"

namespace nibble {
namespace {

std::string lower_case(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
  return out;
}

// "example.org" of "Example.org:8080", "::1" of "[::1]:8080".
std::string host_name(std::string_view host) {
  if (host.starts_with("[")) return lower_case(host.substr(1, host.find(']') - 1));
  return lower_case(host.substr(0, host.find(':')));
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) {
  // Every byte of `a` is looked at, whatever b is.
  unsigned char different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return different == 0;
}

bool is_loopback(std::string_view host) {
  const std::string name = lower_case(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return name == "::1" || name == "localhost";
}

void Gate::check(const RequestHead& head) const {
  check_host(head);
  check_origin(head);
  check_key(head);
}

// A page whose name was made to point at this machine still sends its name.
void Gate::check_host(const RequestHead& head) const {
  const std::string* const host = head.find("host");
  if (!host || head.count("host") != 1)
    throw ApiError(400, "invalid_request_error", "a request needs one Host header");
  const std::string name = host_name(*host);
  if (name == "localhost" || is_address(name)) return;
  if (std::ranges::find(options_.hosts, name) != options_.hosts.end()) return;
  throw ApiError(403, "permission_error",
                 fmt::format("this server is not known as '{}'; --allow-host names it", name), "",
                 "host_not_allowed");
}

std::string Gate::allowed_origin(const RequestHead& head) const {
  const std::string* const origin = head.find("origin");
  if (!origin) return "";
  const bool named = std::ranges::find(options_.origins, *origin) != options_.origins.end();
  return named ? *origin : "";
}

void Gate::check_origin(const RequestHead& head) const {
  const std::string* const origin = head.find("origin");
  if (!origin || !allowed_origin(head).empty()) return;
  const std::string* const host = head.find("host");
  const bool own = lower_case(*origin) == "http://" + lower_case(*host) ||
                   lower_case(*origin) == "https://" + lower_case(*host);
  if (own && head.count("origin") == 1) return;
  throw ApiError(403, "permission_error",
                 fmt::format("pages of '{}' may not use this server; --allow-origin names those "
                             "that may",
                             *origin),
                 "", "origin_not_allowed");
}

void Gate::check_key(const RequestHead& head) const {
  if (options_.api_key.empty() || head.path() == "/health") return;
  if (std::ranges::find(options_.open_paths, head.path()) != options_.open_paths.end()) return;
  // A browser asks first, without the key, whether it may ask; that says nothing.
  if (head.method == "OPTIONS") return;
  constexpr std::string_view kBearer = "bearer ";
  const std::string* const given = head.find("authorization");
  const bool bearer = given && lower_case(given->substr(0, kBearer.size())) == kBearer;
  if (bearer && same_secret(std::string_view(*given).substr(kBearer.size()), options_.api_key)) {
    return;
  }
  throw ApiError(401, "invalid_request_error",
                 bearer ? "Incorrect API key provided"
                        : "You didn't provide an API key: send 'Authorization: Bearer KEY'",
                 "", "invalid_api_key");
}

}  // namespace nibble
