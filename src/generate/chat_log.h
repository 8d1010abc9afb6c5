// SPDX-License-Identifier: MIT
// Conversations on disk: a text log for people, a JSONL log for programs, and its replay. The
// formats are the predecessor's.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template.h"

namespace nibble {

// Appends one turn: "==== 2026-11-15 09:30:00 ====", "[role] text" lines, "[assistant] output".
void append_text_log(const std::filesystem::path& file, const std::vector<Message>& asked,
                     std::string_view output, std::string_view timestamp);
// `first`: of a conversation that has nothing to do with the turns before it in the file, or that
// takes their place; `asked` is then everything before the reply.
enum class LogTurn { next, first };
// One line of the JSONL log, with its newline:
// {"ts": ..., "messages": [{"role": ..., "text": ...}], "output": ..., "new": true}
// "new" stands in first turns alone.
std::string jsonl_line(const std::vector<Message>& asked, std::string_view output,
                       std::string_view timestamp, LogTurn turn = LogTurn::next);
void append_jsonl_log(const std::filesystem::path& file, const std::vector<Message>& asked,
                      std::string_view output, std::string_view timestamp,
                      LogTurn turn = LogTurn::next);
// Makes sure that the log can be appended to.
void touch_log(const std::filesystem::path& file);
std::string log_timestamp();  // local time, "yyyy-MM-dd HH:mm:ss"

struct ReplayedChat {
  std::vector<Message> history;  // everything before the last question
  std::string last_question;     // to be answered anew
};
// Reads the last conversation of a JSONL log. Every output becomes an assistant message except the
// last one. Blank lines are skipped; a damaged line is a FormatError with its number.
ReplayedChat read_jsonl_log(const std::filesystem::path& file);
ReplayedChat parse_jsonl_log(std::string_view text, const std::string& name);

}  // namespace nibble
