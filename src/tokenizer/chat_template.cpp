// SPDX-License-Identifier: MIT
#include "tokenizer/chat_template.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tokenizer/python_json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kToolsHead =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kToolsTail =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call>";

// Collects the text in pieces, so that encoding can tell the template from what it is filled with.
class Renderer {
 public:
  explicit Renderer(const ChatOptions& options) : options_(options) {}

  void conversation(std::span<const Message> messages, std::span<const std::string> tools) {
    if (messages.empty()) throw_usage("a chat needs at least one message");
    head(messages[0], tools);
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      switch (m.role) {
        case Role::system:
          if (i > 0) turn(m);
          break;
        case Role::user: turn(m); break;
        case Role::assistant: assistant(m); break;
        case Role::tool:
          // Consecutive tool responses share one user turn.
          if (i == 0 || messages[i - 1].role != Role::tool) fixed("<|im_start|>user");
          fixed("\n<tool_response>\n");
          content(m.content);
          fixed("\n</tool_response>");
          if (i + 1 == messages.size() || messages[i + 1].role != Role::tool) fixed(kTurnEnd);
          break;
      }
    }
    generation_prompt();
  }

  void turn(const Message& m) {
    open(m.role);
    content(m.content);
    close_input();
  }

  void generation_prompt() {
    if (options_.generation_prompt == GenerationPrompt::yes) open(Role::assistant);
  }

  std::string text() const {
    std::string out;
    for (const TextPiece& p : pieces_) out += p.text;
    return out;
  }

  std::vector<int32_t> encode(const Tokenizer& tokenizer, ContentTokens how) {
    // The template's own pieces say `parse`, contents were marked `plain`.
    if (how == ContentTokens::parse) {
      for (TextPiece& p : pieces_) p.special = SpecialTokens::parse;
    }
    return tokenizer.encode(pieces_);
  }

 private:
  void fixed(std::string_view text) { pieces_.push_back({text, SpecialTokens::parse}); }
  void content(std::string_view text) { pieces_.push_back({text, SpecialTokens::plain}); }

  void open(Role role) {
    fixed("<|im_start|>");
    fixed(role_name(role));
    fixed("\n");
  }
  void close_input() {
    if (options_.style == TemplateStyle::predecessor) fixed("\n");
    fixed(kTurnEnd);
  }

  void head(const Message& first, std::span<const std::string> tools) {
    const bool system = first.role == Role::system;
    if (tools.empty()) {
      if (system) turn(first);
      return;
    }
    open(Role::system);
    if (system) {
      content(first.content);
      fixed("\n\n");
    }
    fixed(kToolsHead);
    for (const std::string& tool : tools) {
      fixed("\n");
      content(tool);
    }
    fixed(kToolsTail);
    close_input();
  }

  void assistant(const Message& m) {
    open(Role::assistant);
    content(m.content);
    bool first = true;
    for (const ToolCall& call : m.tool_calls) {
      if (!first || !m.content.empty()) fixed("\n");
      first = false;
      fixed("<tool_call>\n{\"name\": \"");
      content(call.name);
      fixed("\", \"arguments\": ");
      content(call.arguments);
      fixed("}\n</tool_call>");
    }
    fixed(kTurnEnd);
  }

  ChatOptions options_;
  std::vector<TextPiece> pieces_;
};

Renderer user_turn(std::string_view user_content, const ChatOptions& options, Message& storage) {
  storage = {Role::user, std::string(user_content)};
  Renderer r(options);
  r.turn(storage);
  r.generation_prompt();
  return r;
}

const std::string& text_member(const Json& j, const char* key, const char* where) {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_string()) {
    throw_usage("{}: '{}' is missing or not a string", where, key);
  }
  return at->get_ref<const std::string&>();
}

ToolCall tool_call_from_json(const Json& j) {
  if (!j.is_object()) throw_usage("a tool call must be an object");
  const auto function = j.find("function");
  const Json& f =
      function != j.end() && function->is_object() && !function->empty() ? *function : j;
  ToolCall call{text_member(f, "name", "tool call"), std::string()};
  const auto arguments = f.find("arguments");
  if (arguments == f.end()) throw_usage("tool call '{}': 'arguments' is missing", call.name);
  call.arguments = arguments->is_string() ? arguments->get<std::string>() : python_json(*arguments);
  return call;
}

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::system: return "system";
    case Role::user: return "user";
    case Role::assistant: return "assistant";
    case Role::tool: return "tool";
  }
  throw_internal("role {}", int(role));
}

Role role_from_name(std::string_view name) {
  for (const Role r : {Role::system, Role::user, Role::assistant, Role::tool}) {
    if (role_name(r) == name) return r;
  }
  throw_usage("unknown role '{}'; known are system, user, assistant, tool", name);
}

std::string render(std::span<const Message> messages, std::span<const std::string> tools,
                   const ChatOptions& options) {
  Renderer r(options);
  r.conversation(messages, tools);
  return r.text();
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 std::span<const std::string> tools, const ChatOptions& options,
                                 ContentTokens content) {
  Renderer r(options);
  r.conversation(messages, tools);
  return r.encode(tokenizer, content);
}

std::string render_turn(std::string_view user_content, const ChatOptions& options) {
  Message storage;
  return user_turn(user_content, options, storage).text();
}

std::vector<int32_t> encode_turn(const Tokenizer& tokenizer, std::string_view user_content,
                                 const ChatOptions& options, ContentTokens content) {
  Message storage;
  return user_turn(user_content, options, storage).encode(tokenizer, content);
}

Message message_from_json(const Json& j) {
  if (!j.is_object()) throw_usage("a chat message must be an object");
  Message m;
  m.role = role_from_name(text_member(j, "role", "chat message"));
  const auto content = j.find("content");
  if (content != j.end() && !content->is_null()) {
    m.content = text_member(j, "content", "chat message");
  }
  const auto calls = j.find("tool_calls");
  if (calls != j.end() && !calls->is_null()) {
    if (!calls->is_array()) throw_usage("chat message: 'tool_calls' is not an array");
    if (!calls->empty() && m.role != Role::assistant) {
      throw_usage("chat message: only an assistant has 'tool_calls'");
    }
    for (const Json& call : *calls) m.tool_calls.push_back(tool_call_from_json(call));
  }
  return m;
}

std::vector<Message> messages_from_json(const Json& list) {
  if (!list.is_array()) throw_usage("'messages' must be an array");
  std::vector<Message> out;
  for (const Json& j : list) out.push_back(message_from_json(j));
  return out;
}

}  // namespace nibble
