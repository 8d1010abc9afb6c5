// SPDX-License-Identifier: MIT
#include "data/read/shapes.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/json.h"
#include "tokenizer/python_json.h"

namespace nibble {
namespace {

using ShapeJson = nlohmann::ordered_json;
using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 3> kLists = {"messages", "conversations", "conversation"};
constexpr std::array<std::string_view, 5> kPrompts = {"prompt", "instruction", "question", "query",
                                                      "input"};
constexpr std::array<std::string_view, 5> kAnswers = {"target", "response", "completion", "output",
                                                      "answer"};
constexpr std::array<std::string_view, 2> kSystems = {"system", "system_prompt"};
constexpr std::array<std::string_view, 2> kMore = {"input", "context"};  // beside an instruction

bool holds(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// An object, and which of its members were of use. Null counts as absent.
class Members {
 public:
  explicit Members(const ShapeJson& j) : j_(j), used_(j.size(), false) {}

  const ShapeJson* find(std::string_view key) {
    size_t i = 0;
    for (auto it = j_.begin(); it != j_.end(); ++it, ++i) {
      if (it.key() != key) continue;
      used_[i] = true;
      return it->is_null() ? nullptr : &*it;
    }
    return nullptr;
  }
  // The one of these names that is there; two of them contradict each other.
  std::pair<std::string_view, const ShapeJson*> one_of(Names names) {
    std::pair<std::string_view, const ShapeJson*> found{};
    for (const std::string_view name : names) {
      const ShapeJson* const value = find(name);
      if (!value) continue;
      if (found.second) {
        throw_format("both \"{}\" and \"{}\" are given, which mean the same here: remove one",
                     found.first, name);
      }
      found = {name, value};
    }
    return found;
  }
  bool has(std::string_view key) const {
    const auto it = j_.find(key);
    return it != j_.end() && !it->is_null();
  }
  void rest(std::vector<std::string>& ignored, std::string_view of = "") const {
    size_t i = 0;
    for (auto it = j_.begin(); it != j_.end(); ++it, ++i) {
      if (used_[i]) continue;
      std::string key = fmt::format("{}{}", of, excerpt(it.key()));
      if (std::find(ignored.begin(), ignored.end(), key) == ignored.end()) {
        ignored.push_back(std::move(key));
      }
    }
  }

 private:
  const ShapeJson& j_;
  std::vector<bool> used_;
};

const std::string& text_of(const ShapeJson& value, std::string_view key) {
  if (!value.is_string()) throw_format("\"{}\" is not a string", key);
  return value.get_ref<const std::string&>();
}
std::string filled_text(const ShapeJson& value, std::string_view key) {
  const std::string& text = text_of(value, key);
  if (trim_text(text).empty()) throw_format("\"{}\" is empty", key);
  return text;
}
// Where nothing and an empty text are the same: columns that only some rows fill.
std::string text_or_nothing(const ShapeJson* value, std::string_view key) {
  if (!value) return "";
  const std::string& text = text_of(*value, key);
  return trim_text(text).empty() ? "" : text;
}

// A list that may be written as text, as in a cell of a table.
ShapeJson list_of(const ShapeJson& value, std::string_view key) {
  if (value.is_array()) return value;
  ShapeJson list;
  if (value.is_string()) {
    try {
      list = parse_json<ShapeJson>(value.get_ref<const std::string&>());
    } catch (const ShapeJson::exception&) {
    }
  }
  if (!list.is_array()) throw_format("\"{}\" is not an array", key);
  return list;
}

// OpenAI's content in parts: those of text, end to end.
std::string joined_parts(const ShapeJson& parts, std::string_view key) {
  std::string out;
  for (const ShapeJson& part : parts) {
    const bool text = part.is_object() && part.value("type", ShapeJson()) == "text" &&
                      part.contains("text") && part.at("text").is_string();
    if (!text)
      throw_format("\"{}\" has a part that is not text, which nibble cannot learn from", key);
    out += part.at("text").get_ref<const std::string&>();
  }
  return out;
}

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return out;
}

Message any_message(const ShapeJson& j, std::vector<std::string>& ignored) {
  if (!j.is_object()) throw_format("a message is not a JSON object");
  Members members(j);
  constexpr std::array<std::string_view, 2> kRoles = {"role", "from"};
  constexpr std::array<std::string_view, 3> kContents = {"content", "value", "text"};
  const auto [role_key, role] = members.one_of(kRoles);
  if (!role) throw_format("a message has no \"role\" (nor \"from\")");
  const auto [content_key, content] = members.one_of(kContents);
  const std::string& name = text_of(*role, role_key);
  ShapeJson plain = ShapeJson::object();
  if (lower_ascii(name) == "function_call") {  // an assistant's call, in place of words
    ShapeJson call =
        parse_json_or_discard<ShapeJson>(content ? text_of(*content, content_key) : "");
    if (!call.is_object())
      throw_format("a message from 'function_call' does not hold a JSON object");
    plain = {{"role", "assistant"}, {"tool_calls", ShapeJson::array({std::move(call)})}};
  } else {
    plain["role"] = role_name(role_from_any_name(name));
    if (content) {
      plain["content"] = content->is_array() ? joined_parts(*content, content_key)
                                             : text_of(*content, content_key);
    }
    if (const ShapeJson* calls = members.find("tool_calls")) plain["tool_calls"] = *calls;
  }
  members.rest(ignored, "messages[].");
  return message_from_json(plain);
}

void add_messages(const ShapeJson& list, DataRecord& record) {
  for (const ShapeJson& m : list) record.messages.push_back(any_message(m, record.ignored));
}

// [["question", "answer"], ...]: what was said before.
void add_history(const ShapeJson& value, DataRecord& record) {
  for (const ShapeJson& pair : list_of(value, "history")) {
    if (!pair.is_array() || pair.size() != 2) {
      throw_format("\"history\" is not a list of [question, answer] pairs");
    }
    record.messages.push_back({Role::user, filled_text(pair[0], "history")});
    record.messages.push_back({Role::assistant, filled_text(pair[1], "history")});
  }
}

void add_system(Members& members, DataRecord& record) {
  const auto [key, value] = members.one_of(kSystems);
  std::string text = text_or_nothing(value, key);
  if (!text.empty()) record.messages.push_back({Role::system, std::move(text)});
}

void add_tools(Members& members, DataRecord& record) {
  const ShapeJson* const tools = members.find("tools");
  if (!tools || (tools->is_string() && tools->get_ref<const std::string&>().empty())) return;
  for (const ShapeJson& tool : list_of(*tools, "tools")) {
    if (!tool.is_object()) throw_format("\"tools\" holds something that is not an object");
    record.tools.push_back(python_json(tool));
  }
}

void add_answer(std::string_view key, const ShapeJson& value, DataRecord& record) {
  if (value.is_array()) {
    add_messages(value, record);
  } else {
    record.messages.push_back({Role::assistant, filled_text(value, key)});
  }
}

// {"messages": [...]}, {"conversations": [{"from", "value"}]}, and a chat log's turn, whose answer
// stands beside its messages.
DataRecord conversation_shape(Members& members, std::string_view key) {
  DataRecord record;
  add_system(members, record);
  const ShapeJson* const list = members.find(key);
  add_messages(list_of(*list, key), record);
  if (record.messages.empty()) throw_format("\"{}\" is empty", key);
  if (record.messages.back().role != Role::assistant) {
    if (const auto [name, value] = members.one_of(kAnswers); value)
      add_answer(name, *value, record);
    members.find("ts");
  }
  add_tools(members, record);
  return record;
}

std::string_view prompt_key(const Members& members) {
  for (const std::string_view name : kPrompts) {
    if (members.has(name)) return name;
  }
  return "";
}

DataRecord pair_shape(Members& members, std::string_view key) {
  DataRecord record;
  const bool instruction = key == "instruction";
  for (const std::string_view other : kPrompts) {
    if (other == key || !members.has(other) || (instruction && other == "input")) continue;
    throw_format("both \"{}\" and \"{}\" could be the prompt: remove one", key, other);
  }
  add_system(members, record);
  if (const ShapeJson* history = members.find("history")) add_history(*history, record);
  const ShapeJson& prompt = *members.find(key);
  if (prompt.is_array()) {
    add_messages(prompt, record);
  } else {
    std::string text = filled_text(prompt, key);
    for (const std::string_view more : kMore) {
      if (!instruction) break;
      const std::string added = text_or_nothing(members.find(more), more);
      if (!added.empty()) text += "\n" + added;
    }
    record.messages.push_back({Role::user, std::move(text)});
  }
  if (const auto [name, value] = members.one_of(kAnswers); value) add_answer(name, *value, record);
  add_tools(members, record);
  return record;
}

}  // namespace

bool begins_a_record(std::string_view key) {
  return key == "text" || holds(kLists, key) || holds(kPrompts, key);
}

Role role_from_any_name(std::string_view name) {
  constexpr std::pair<std::string_view, Role> kNames[] = {
      {"system", Role::system},   {"developer", Role::system},   {"user", Role::user},
      {"human", Role::user},      {"prompter", Role::user},      {"assistant", Role::assistant},
      {"gpt", Role::assistant},   {"chatgpt", Role::assistant},  {"bot", Role::assistant},
      {"model", Role::assistant}, {"ai", Role::assistant},       {"bard", Role::assistant},
      {"bing", Role::assistant},  {"tool", Role::tool},          {"observation", Role::tool},
      {"function", Role::tool},   {"tool_response", Role::tool}, {"function_response", Role::tool}};
  const std::string lower = lower_ascii(name);
  for (const auto& [known, role] : kNames) {
    if (known == lower) return role;
  }
  throw_usage(
      "unknown role '{}'; known are system, user (human), assistant (gpt, model), tool "
      "(observation)",
      excerpt(name));
}

DataRecord record_from_json(const ShapeJson& j) {
  Members members(j);
  DataRecord record;
  const auto list = std::find_if(kLists.begin(), kLists.end(),
                                 [&](std::string_view key) { return members.has(key); });
  if (list != kLists.end()) {
    record = conversation_shape(members, *list);
  } else if (const std::string_view key = prompt_key(members); !key.empty()) {
    record = pair_shape(members, key);
  } else if (const ShapeJson* text = members.find("text")) {
    record.text = filled_text(*text, "text");
  } else {
    std::string found;
    for (const auto& [name, value] : j.items()) {
      found += fmt::format("{}\"{}\"{}", found.empty() ? "" : ", ", excerpt(name),
                           value.is_null() ? " (null)" : "");
      if (found.size() > 200) break;
    }
    throw_format(
        "expected \"messages\", \"conversations\", or \"prompt\" and \"completion\", or "
        "\"instruction\" and \"output\", or \"text\"; found {}",
        found.empty() ? "nothing" : found);
  }
  members.rest(record.ignored);
  return record;
}

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

void check_conversation(std::span<const Message> messages) {
  check_turns(messages);
  if (messages.back().role != Role::assistant) {
    throw_format("the last message is from '{}': nothing after the last answer can be learned",
                 role_name(messages.back().role));
  }
}

}  // namespace nibble
