// SPDX-License-Identifier: MIT
#include "generate/chat_log.h"

#include <ctime>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

void append(const std::filesystem::path& file, const std::string& text) {
  make_directories(file.parent_path());
  append_file(file, text);
}

struct LoggedTurn {
  std::vector<Message> asked;
  std::string output;
  bool first = false;
};

LoggedTurn parse_line(const std::string& line, const std::string& where) {
  try {
    const auto j = parse_json<ordered_json>(line);
    LoggedTurn t;
    for (const auto& m : j.at("messages")) {
      t.asked.push_back(
          {role_from_name(m.at("role").get<std::string>()), m.at("text").get<std::string>()});
    }
    t.output = j.at("output").get<std::string>();
    t.first = j.contains("new") && j.at("new").get<bool>();
    return t;
  } catch (const std::exception& e) {
    throw_format("{}: not a turn of a chat log: {}", where, e.what());
  }
}

}  // namespace

std::string log_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

void touch_log(const std::filesystem::path& file) { append(file, ""); }

void append_text_log(const std::filesystem::path& file, const std::vector<Message>& asked,
                     std::string_view output, std::string_view timestamp) {
  std::string text = fmt::format("==== {} ====\n", timestamp);
  for (const Message& m : asked) text += fmt::format("[{}] {}\n", role_name(m.role), m.content);
  text += fmt::format("[assistant] {}\n\n", output);
  append(file, text);
}

std::string jsonl_line(const std::vector<Message>& asked, std::string_view output,
                       std::string_view timestamp, LogTurn turn) {
  ordered_json messages = ordered_json::array();
  for (const Message& m : asked) {
    messages.push_back({{"role", role_name(m.role)}, {"text", m.content}});
  }
  ordered_json line = {{"ts", timestamp}, {"messages", messages}, {"output", output}};
  if (turn == LogTurn::first) line["new"] = true;
  // A reply cut in the middle of a character would make the line invalid: replace, do not throw.
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void append_jsonl_log(const std::filesystem::path& file, const std::vector<Message>& asked,
                      std::string_view output, std::string_view timestamp, LogTurn turn) {
  append(file, jsonl_line(asked, output, timestamp, turn));
}

ReplayedChat read_jsonl_log(const std::filesystem::path& file) {
  return parse_jsonl_log(read_text_file(file), file.string());
}

ReplayedChat parse_jsonl_log(std::string_view text, const std::string& name) {
  std::vector<LoggedTurn> turns;
  size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    LoggedTurn turn = parse_line(line, fmt::format("{}:{}", name, number));
    if (turn.first) turns.clear();
    turns.push_back(std::move(turn));
  }
  if (turns.empty() || turns.back().asked.empty() || turns.back().asked.back().role != Role::user) {
    throw_format("{}: a replay needs a last turn that ends with a user message", name);
  }
  ReplayedChat chat;
  for (size_t i = 0; i < turns.size(); ++i) {
    for (Message& m : turns[i].asked) chat.history.push_back(std::move(m));
    if (i + 1 < turns.size()) chat.history.push_back({Role::assistant, turns[i].output});
  }
  chat.last_question = chat.history.back().content;
  chat.history.pop_back();
  return chat;
}

}  // namespace nibble
