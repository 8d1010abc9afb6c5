// SPDX-License-Identifier: MIT
#include "apps/chat/chat_logs.h"

#include "core/file.h"
#include "generate/chat_log.h"

namespace nibble {
namespace fs = std::filesystem;

ChatLogs::ChatLogs(fs::path text, fs::path jsonl)
    : text_{std::move(text)}, jsonl_{std::move(jsonl)} {
  open(text_);
  open(jsonl_);
}

void ChatLogs::open(Log& log) {
  std::error_code ec;
  log.first = !log.file.empty() && fs::is_regular_file(log.file, ec) && !fs::is_empty(log.file, ec);
}

template <class Append>
void ChatLogs::append(Log& log, const Append& write) {
  if (log.file.empty()) return;
  std::error_code none, failed;
  Turn turn;
  turn.begin = fs::file_size(log.file, none);
  turn.first = std::exchange(log.first, false);
  write(log.file, turn.first);
  turn.end = fs::file_size(log.file, failed);
  turn.known = !failed && fs::is_regular_file(log.file, failed);
  if (none) turn.begin = 0;
  log.turns.push_back(turn);
}

void ChatLogs::add(const std::vector<Message>& messages) {
  const std::string now = log_timestamp(), &reply = messages.back().content;
  const auto last = messages.end() - 1;
  auto begin = last;  // of what was asked since the reply before
  while (begin != messages.begin() && (begin - 1)->role != Role::assistant) --begin;
  const std::vector<Message> all(messages.begin(), last), asked(begin, last);
  append(text_, [&](const fs::path& f, bool first) {
    if (first) append_file(f, "==== " + now + " ====\n[a new conversation]\n\n");
    append_text_log(f, asked, reply, now);
  });
  append(jsonl_, [&](const fs::path& f, bool first) {
    append_jsonl_log(f, first ? all : asked, reply, now, first ? LogTurn::first : LogTurn::next);
  });
}

void ChatLogs::cut(Log& log) {
  if (log.file.empty()) return;
  const Turn turn = log.turns.empty() ? Turn{} : log.turns.back();
  if (!log.turns.empty()) log.turns.pop_back();
  std::error_code failed;
  log.first = true;
  if (!turn.known || fs::file_size(log.file, failed) != turn.end || failed) return;
  fs::resize_file(log.file, turn.begin, failed);
  if (failed) return;
  append_file(log.file, "");  // flushes
  log.first = turn.first;
}

void ChatLogs::take_back() {
  cut(text_);
  cut(jsonl_);
}

void ChatLogs::begin_anew() {
  for (Log* log : {&text_, &jsonl_}) {
    // Nothing written by this conversation and nothing before it: it is the first of the file.
    log->first = log->first || !log->turns.empty();
    log->turns.clear();
  }
}

}  // namespace nibble
