// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as the head of a request. What is taken is taken again from what goes on
// to the library, and says the same; who may ask is asked of it.
#include "serve/http/gate.h"
#include "serve/http/request_head.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  static const Gate gate({"0123456789abcdef", {"a.lan"}, {"https://b.lan"}});
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const RequestHead head = parse_request_head(text, {});
    const RequestHead again = parse_request_head(head.forwarded(), {});
    if (again.method != head.method || again.target != head.target ||
        again.content_length != head.content_length || again.find("range")) {
      __builtin_trap();
    }
    for (const auto& [name, value] : again.headers) {
      if (value.find_first_of("\r\n") != value.npos) __builtin_trap();
    }
    gate.check(head);
    if (!head.find("authorization") && head.path() != "/health" && head.method != "OPTIONS") {
      __builtin_trap();
    }
  } catch (const ApiError& e) {
    if (e.status() < 400 || e.body().empty()) __builtin_trap();
  }
  return 0;
}
