// SPDX-License-Identifier: MIT
// Request line and headers, read by strict rules and judged before anything else sees them: what a
// careful client never sends is refused, so that no two readers can take it for two things.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/api/api_error.h"

namespace nibble {

struct HeadLimits {
  size_t bytes = 32 << 10;  // of request line and headers
  size_t target = 1024, headers = 100;
  size_t body = 16 << 20;
};

struct RequestHead {
  std::string method, target, version;                       // "POST", "/v1/models", "HTTP/1.1"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  uint64_t content_length = 0;

  const std::string* find(std::string_view name) const;  // name in lower case; the first
  size_t count(std::string_view name) const;
  std::string_view path() const;  // the target without its query
  // As it goes on to the library: without what the server has no use for and the library would act
  // upon (ranges, compressed replies).
  std::string forwarded() const;
};

// `text` ends with the empty line. Throws ApiError.
RequestHead parse_request_head(std::string_view text, const HeadLimits& limits);

}  // namespace nibble
