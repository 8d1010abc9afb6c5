// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a JSONL chat log.
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "generate/chat_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string file = "/tmp/nibble-fuzz-chat-" + std::to_string(::getpid()) + ".jsonl";
  nibble::write_text_file_atomic(file, {reinterpret_cast<const char*>(data), size});
  try {
    const nibble::ReplayedChat chat = nibble::read_jsonl_log(file);
    // What was read can be written and read again.
    std::vector<nibble::Message> asked = chat.history;
    asked.push_back({nibble::Role::user, chat.last_question});
    std::filesystem::remove(file);
    nibble::append_jsonl_log(file, asked, "x", "t");
    if (nibble::read_jsonl_log(file).history.size() != chat.history.size()) __builtin_trap();
  } catch (const nibble::FormatError&) {
  }
  std::filesystem::remove(file);
  return 0;
}
