// SPDX-License-Identifier: MIT
// libFuzzer target: a byte that chooses a path, and the body of a request to it, asked of the mini
// model. Every answer is JSON with a status that fits, or a stream whose lines are events: JSON
// each, the last one [DONE].
#include <algorithm>

#include "core/json.h"
#include "serve/mini_service.h"

namespace nibble {
extern const char* const kSourceDir = NIBBLE_SOURCE_DIR;
}

namespace {

using namespace nibble;
using Json = nlohmann::ordered_json;

void check_events(std::string_view text) {
  constexpr std::string_view kData = "data: ", kDone = "[DONE]";
  bool done = false;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    if (end == text.npos || done || !text.starts_with(kData)) __builtin_trap();
    const std::string_view event = text.substr(kData.size(), end - kData.size());
    if (event.find_first_of("\r\n") != event.npos) __builtin_trap();
    done = event == kDone;
    if (!done && !parse_json_or_discard<Json>(event).is_object()) __builtin_trap();
    text.remove_prefix(end + 2);
  }
  if (!done) __builtin_trap();
}

// Few tokens, or an input would take seconds.
std::string shortened(std::string_view body) {
  Json j = parse_json_or_discard<Json>(body);
  if (!j.is_object()) return std::string(body);
  const auto limit = [&](const char* name, int most) {
    if (!j.contains(name) || (j[name].is_number() && j[name] > most)) j[name] = most;
  };
  limit(j.contains("max_completion_tokens") ? "max_completion_tokens" : "max_tokens", 3);
  if (j.contains("n")) limit("n", 2);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static test::MiniService mini(2);
  constexpr const char* kPaths[] = {"/v1/chat/completions", "/v1/completions", "/tokenize",
                                    "/detokenize"};
  if (size == 0 || size > 700) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool generates = data[0] % 4 < 2;
  ApiResponse r = mini.service.answer(
      {"POST", kPaths[data[0] % 4], generates ? shortened(body) : std::string(body), {}});
  if (!r.next) {
    const bool sound = r.status == 200 || r.status == 400 || r.status == 404;
    if (!sound || !parse_json_or_discard<Json>(r.body).is_object()) __builtin_trap();
    return 0;
  }
  std::string events;
  while (r.next(events)) continue;
  check_events(events);
  return 0;
}
