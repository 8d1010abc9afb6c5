// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a JSONL chat log.
#include "core/error.h"
#include "generate/chat_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  try {
    const ReplayedChat chat = parse_jsonl_log({reinterpret_cast<const char*>(data), size}, "log");
    // What was read can be written and read again.
    std::vector<Message> asked = chat.history;
    asked.push_back({Role::user, chat.last_question});
    const ReplayedChat again = parse_jsonl_log(jsonl_line(asked, "x", "t"), "again");
    if (again.history.size() != chat.history.size()) __builtin_trap();
    if (again.last_question != chat.last_question) __builtin_trap();
  } catch (const FormatError&) {
  }
  return 0;
}
