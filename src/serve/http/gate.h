// SPDX-License-Identifier: MIT
// Who may ask. A server on this machine can be reached by every web page that is open here: pages
// of other sites are kept out by Host (DNS rebinding) and Origin (cross-site requests), programs by
// a key where the server listens to more than this machine.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/request_head.h"

namespace nibble {

struct GateOptions {
  std::string api_key;                       // empty: nobody is asked for one
  std::vector<std::string> hosts;            // names, besides localhost and addresses
  std::vector<std::string> origins;          // "https://example.org": may ask from their pages
  std::vector<std::string> open_paths = {};  // need no key, as /health: a page that asks for it
};

// In a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b);
// 127.0.0.0/8, ::1, localhost.
bool is_loopback(std::string_view host);

class Gate {
 public:
  explicit Gate(GateOptions options) : options_(std::move(options)) {}
  // Throws ApiError.
  void check(const RequestHead& head) const;
  // The origin that may read the answer; empty: none is asked for.
  std::string allowed_origin(const RequestHead& head) const;

 private:
  void check_host(const RequestHead& head) const;
  void check_origin(const RequestHead& head) const;
  void check_key(const RequestHead& head) const;
  GateOptions options_;
};

}  // namespace nibble
