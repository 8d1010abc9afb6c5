// SPDX-License-Identifier: MIT
// The logs of a conversation (--tee, --tee-jsonl) that stay what the conversation is: a turn that
// is taken back is taken out of them again, and a conversation that begins anew is marked as one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/chat_template.h"

namespace nibble {

class ChatLogs {
 public:
  // Empty: no such log. Files that hold something already get a new conversation behind it.
  ChatLogs(std::filesystem::path text, std::filesystem::path jsonl);

  // The last of the messages is the reply that was just given.
  void add(const std::vector<Message>& messages);
  // The last turn. Where that cannot be (a pipe, or somebody else has written since), the next turn
  // is logged as a new conversation with all its messages.
  void take_back();
  // What follows does not go on where the log ends: forgotten, loaded, changed.
  void begin_anew();

 private:
  struct Turn {
    uint64_t begin = 0, end = 0;  // bytes of the file
    bool known = false;           // false: no regular file
    bool first = false;
  };
  struct Log {
    std::filesystem::path file;
    std::vector<Turn> turns = {};
    bool first = false;  // the next turn is the first of a conversation
  };
  static void open(Log& log);
  template <class Append>
  static void append(Log& log, const Append& write);
  static void cut(Log& log);

  Log text_, jsonl_;
};

}  // namespace nibble
