// SPDX-License-Identifier: MIT
// Lines that are JSON objects: {"messages": [...]}, {"prompt": ..., "target": ...}, {"text": ...}.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "data/lines.h"
#include "tokenizer/python_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

// Refuses what a document tree would hide (a key given twice) or choke on.
class Strictness {
 public:
  bool operator()(int, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) throw_format("the key \"{}\" twice", excerpt(key));
      if (keys_.back().size() > kMaxKeys) throw_format("an object of over {} keys", kMaxKeys);
    }
    return true;
  }

 private:
  static constexpr size_t kMaxKeys = 1024;
  std::vector<std::set<std::string>> keys_;  // of each object we are in
};

Json parse_object(std::string_view line) {
  if (too_deep_in_json(line)) throw_format("nested deeper than {}", kMaxNesting);
  Json j;
  try {
    // By reference: the parser copies its callback.
    Strictness strict;
    j = parse_json<Json>(
        line, [&](int depth, Json::parse_event_t e, Json& v) { return strict(depth, e, v); });
  } catch (const Json::parse_error& e) {
    throw_format("not valid JSON at character {} of the line: '{}'", e.byte, excerpt(line));
  } catch (const Json::exception& e) {  // a number too large
    throw_format("not valid JSON: {}", e.what());
  }
  if (!j.is_object()) throw_format("not a JSON object but '{}'", excerpt(line));
  return j;
}

void only_keys(const Json& j, const char* where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : j.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string list;
    for (const std::string_view k : known)
      list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", k);
    throw_format("{}: unknown key \"{}\" (known: {}); nothing is ignored silently, so remove it",
                 where, excerpt(key), list);
  }
}

std::string filled_text(const Json& j, const char* key) {
  const Json& value = j.at(key);
  if (!value.is_string()) throw_format("\"{}\" is not a string", key);
  const auto& text = value.get_ref<const std::string&>();
  if (trim_text(text).empty()) throw_format("\"{}\" is empty", key);
  return text;
}

std::vector<Message> prompt_and_target(const Json& j) {
  only_keys(j, "a prompt with its target", {"prompt", "target", "response", "system"});
  if (j.contains("target") == j.contains("response")) {
    throw_format("\"prompt\" needs either \"target\" or \"response\"");
  }
  std::vector<Message> messages;
  if (j.contains("system")) messages.push_back({Role::system, filled_text(j, "system")});
  messages.push_back({Role::user, filled_text(j, "prompt")});
  const char* target = j.contains("target") ? "target" : "response";
  messages.push_back({Role::assistant, filled_text(j, target)});
  return messages;
}

// What is more likely a slip than meant.
void check_turns(std::span<const Message> messages) {
  if (messages.empty()) throw_format("\"messages\" is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    const bool assistant = m.role == Role::assistant;
    if (assistant && i == 0) {
      throw_format("the conversation begins with the assistant: there is nothing to answer");
    }
    if (assistant && messages[i - 1].role == Role::assistant) {
      throw_format("messages {} and {} are both the assistant's; join them", i, i + 1);
    }
    const bool may_be_empty =
        m.role == Role::system || m.role == Role::tool || !m.tool_calls.empty();
    if (!may_be_empty && trim_text(m.content).empty()) {
      throw_format("message {} ({}) is empty", i + 1, role_name(m.role));
    }
  }
}

// Also what cannot be learned from.
void check_conversation(std::span<const Message> messages) {
  check_turns(messages);
  if (messages.back().role != Role::assistant) {
    throw_format("the last message is from '{}': nothing after the last answer can be learned",
                 role_name(messages.back().role));
  }
}

DataRecord conversation(const Json& j) {
  only_keys(j, "a conversation", {"messages", "tools"});
  const Json& list = j.at("messages");
  if (!list.is_array()) throw_format("\"messages\" is not an array");
  for (const Json& m : list) {
    if (m.is_object()) only_keys(m, "a message", {"role", "content", "tool_calls"});
  }
  DataRecord record;
  record.messages = messages_from_json(list);
  check_conversation(record.messages);
  if (j.contains("tools")) {
    if (!j.at("tools").is_array()) throw_format("\"tools\" is not an array");
    for (const Json& tool : j.at("tools")) {
      if (!tool.is_object()) throw_format("\"tools\" holds something that is not an object");
      record.tools.push_back(python_json(tool));
    }
  }
  return record;
}

// The role the last of the messages names; "" where there is none.
std::string last_role(const Json& list) {
  if (!list.is_array() || list.empty() || !list.back().is_object()) return "";
  const auto role = list.back().find("role");
  return role != list.back().end() && role->is_string() ? role->get<std::string>() : "";
}

}  // namespace

JsonLineKind json_line_kind(std::string_view line) {
  const Json j = parse_object(line);
  if (j.contains("messages")) {
    return last_role(j.at("messages")) == role_name(Role::assistant) ? JsonLineKind::conversation
                                                                     : JsonLineKind::prompt;
  }
  if (j.contains("prompt")) {
    const bool answered = j.contains("target") || j.contains("response");
    return answered ? JsonLineKind::conversation : JsonLineKind::prompt;
  }
  if (j.contains("text")) return JsonLineKind::text;
  throw_format("expected \"messages\", \"prompt\" or \"text\", in '{}'", excerpt(line));
}

std::vector<Message> parse_prompt_line(std::string_view line) {
  const Json j = parse_object(line);
  if (json_line_kind(line) != JsonLineKind::prompt) {
    throw_format(
        "this line has its answer, or is plain text, and the lines before it are prompts: "
        "put them into files of their own");
  }
  if (!j.contains("messages")) {
    only_keys(j, "a prompt", {"prompt", "system"});
    std::vector<Message> messages;
    if (j.contains("system")) messages.push_back({Role::system, filled_text(j, "system")});
    messages.push_back({Role::user, filled_text(j, "prompt")});
    return messages;
  }
  only_keys(j, "a prompt", {"messages"});
  const Json& list = j.at("messages");
  if (!list.is_array()) throw_format("\"messages\" is not an array");
  for (const Json& m : list) {
    if (m.is_object()) only_keys(m, "a message of a prompt", {"role", "content"});
  }
  std::vector<Message> messages = messages_from_json(list);
  check_turns(messages);
  if (messages.back().role != Role::user) {
    throw_format("the last message is from '{}': there is nothing to answer",
                 role_name(messages.back().role));
  }
  return messages;
}

DataRecord parse_jsonl_line(std::string_view line, DataUse use) {
  const Json j = parse_object(line);
  if (j.contains("messages")) return conversation(j);
  DataRecord record;
  if (j.contains("prompt")) {
    record.messages = prompt_and_target(j);
  } else if (j.contains("text")) {
    only_keys(j, "a text", {"text"});
    if (use == DataUse::fine_tune) {
      throw_format(
          "a \"text\" has no prompt and response to tell apart: it is for pretraining; here a line "
          "needs \"messages\", or \"prompt\" and \"target\"");
    }
    record.text = filled_text(j, "text");
  } else {
    throw_format("expected \"messages\", or \"prompt\" and \"target\"{}, in '{}'",
                 use == DataUse::pretrain ? ", or \"text\"" : "", excerpt(line));
  }
  return record;
}

}  // namespace nibble
