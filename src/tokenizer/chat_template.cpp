// SPDX-License-Identifier: MIT
#include "tokenizer/chat_template.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "tokenizer/jinja/builtins/json.h"
#include "tokenizer/python_json.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

using jinja::Origin;
using jinja::Text;
using jinja::Value;

// Names of members, made once.
struct Words {
  Value role = jinja::written("role"), content = jinja::written("content"),
        reasoning = jinja::written("reasoning_content"), calls = jinja::written("tool_calls"),
        type = jinja::written("type"), function = jinja::written("function"),
        name = jinja::written("name"), arguments = jinja::written("arguments");
  Value roles[4] = {jinja::written("system"), jinja::written("user"), jinja::written("assistant"),
                    jinja::written("tool")};
};
const Words& words() {
  static const Words w;
  return w;
}

Value outside_text(const std::string& s, Origin origin) {
  return Text(valid_utf8_prefix(s) == s.size() ? s : repair_utf8(s), origin);
}

// Arguments are handed to the template as the object they are; as text only where reading and
// writing them again would not give the same text.
Value arguments_of(const ToolCall& call, Origin origin, jinja::Budget& budget) {
  const Json j = parse_json_or_discard<Json>(call.arguments);
  if (!j.is_discarded() && python_json(j) == call.arguments) {
    return jinja::from_json(j, origin, budget);
  }
  return outside_text(call.arguments, origin);
}

Value tool_call(const ToolCall& call, Origin origin, jinja::Budget& budget) {
  const Words& w = words();
  jinja::DictBuilder function(budget), out(budget);
  function.set(w.name, outside_text(call.name, origin));
  function.set(w.arguments, arguments_of(call, origin, budget));
  out.set(w.type, w.function);
  out.set(w.function, function.take());
  return out.take();
}

Value message_value(const Message& m, size_t index, jinja::Budget& budget) {
  const Words& w = words();
  Origin origin = Origin::outside;
  if (m.role == Role::assistant) origin.source = ChatTemplate::kFirstMessage + uint32_t(index);
  jinja::DictBuilder out(budget);
  out.set(w.role, w.roles[size_t(m.role)]);
  out.set(w.content, outside_text(m.content, origin));
  if (!m.reasoning.empty()) out.set(w.reasoning, outside_text(m.reasoning, origin));
  if (!m.tool_calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& call : m.tool_calls) calls.push_back(tool_call(call, origin, budget));
    out.set(w.calls, jinja::make_list(std::move(calls), budget));
  }
  return out.take();
}

Value tools_value(std::span<const std::string> tools, jinja::Budget& budget) {
  std::vector<Value> out;
  for (const std::string& tool : tools) {
    const Json j = parse_json_or_discard<Json>(tool);
    if (!j.is_object()) throw_usage("a tool is not described by a JSON object: {}", tool);
    out.push_back(jinja::from_json(j, Origin::outside, budget));
  }
  return jinja::make_list(std::move(out), budget);
}

const jinja::Template& builtin(TemplateStyle style) {
  const auto make = [](TemplateStyle s) {
    return jinja::Template::compile(template_source(s), std::string(template_name(s)));
  };
  static const jinja::Template chatml = make(TemplateStyle::chatml),
                               qwen3 = make(TemplateStyle::qwen3),
                               predecessor = make(TemplateStyle::predecessor);
  return style == TemplateStyle::chatml  ? chatml
         : style == TemplateStyle::qwen3 ? qwen3
                                         : predecessor;
}

SpecialTokens rule_of(Origin origin, ContentTokens content) {
  if (!origin.from_outside() || content == ContentTokens::parse) return SpecialTokens::parse;
  return origin.source >= ChatTemplate::kFirstMessage ? SpecialTokens::words : SpecialTokens::plain;
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

ChatTemplate::ChatTemplate(TemplateStyle style) : compiled_(builtin(style)), style_(style) {}

ChatTemplate ChatTemplate::compile(std::string_view source, std::string name, TokenStrings tokens) {
  ChatTemplate out(jinja::Template::compile(source, std::move(name)));
  out.tokens_ = std::move(tokens);
  return out;
}

jinja::Rendering ChatTemplate::render(std::span<const Message> messages,
                                      std::span<const std::string> tools, GenerationPrompt prompt,
                                      std::optional<bool> thinking) const {
  if (messages.empty()) throw_usage("a chat needs at least one message");
  jinja::RenderOptions options;
  jinja::Budget budget(options.limits);
  jinja::Template::Variables variables;
  try {
    std::vector<Value> list;
    for (size_t i = 0; i < messages.size(); ++i) {
      list.push_back(message_value(messages[i], i, budget));
    }
    variables.emplace_back("messages", jinja::make_list(std::move(list), budget));
    variables.emplace_back("tools", tools.empty() ? Value() : tools_value(tools, budget));
    variables.emplace_back("add_generation_prompt", prompt == GenerationPrompt::yes);
    if (thinking) variables.emplace_back("enable_thinking", *thinking);
    for (const auto& [token, text] : tokens_) {
      variables.emplace_back(token, outside_text(text, Origin::written));
    }
    if (compiled_.mentions("strftime_now")) options.now = jinja::time_now();
    return compiled_.render(variables, options);
  } catch (const jinja::Raised& e) {
    throw_usage("{}: {}", name(), e.reason());
  } catch (const jinja::TemplateError& e) {
    throw_usage("the chat template refuses this conversation: {}", e.what());
  }
}

std::string render(std::span<const Message> messages, std::span<const std::string> tools,
                   const ChatOptions& o) {
  return o.style.render(messages, tools, o.generation_prompt, o.thinking).text;
}

std::vector<int32_t> encode_rendering(const Tokenizer& tokenizer, const jinja::Rendering& r,
                                      ContentTokens content, size_t from, size_t to) {
  std::vector<TextPiece> pieces;
  for (const jinja::Run& run : r.runs) {
    if (run.end <= from) continue;
    if (from >= to) break;
    const size_t end = std::min(run.end, to);
    pieces.push_back(
        {std::string_view(r.text).substr(from, end - from), rule_of(run.origin, content)});
    from = end;
  }
  return tokenizer.encode(pieces);
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 std::span<const std::string> tools, const ChatOptions& o,
                                 ContentTokens content) {
  const jinja::Rendering r = o.style.render(messages, tools, o.generation_prompt, o.thinking);
  return encode_rendering(tokenizer, r, content, 0, r.text.size());
}

std::string render_turn(std::string_view user_content, const ChatOptions& options) {
  const Message m{Role::user, std::string(user_content)};
  return render(std::span(&m, 1), {}, options);
}

std::vector<int32_t> encode_turn(const Tokenizer& tokenizer, std::string_view user_content,
                                 const ChatOptions& options, ContentTokens content) {
  const Message m{Role::user, std::string(user_content)};
  return encode_chat(tokenizer, std::span(&m, 1), {}, options, content);
}

Message message_from_json(const Json& j) {
  if (!j.is_object()) throw_usage("a chat message must be an object");
  Message m;
  m.role = role_from_name(text_member(j, "role", "chat message"));
  const auto content = j.find("content");
  if (content != j.end() && !content->is_null()) {
    m.content = text_member(j, "content", "chat message");
  }
  const auto reasoning = j.find("reasoning_content");
  if (reasoning != j.end() && !reasoning->is_null()) {
    m.reasoning = text_member(j, "reasoning_content", "chat message");
    if (m.role != Role::assistant) {
      throw_usage("chat message: only an assistant has 'reasoning_content'");
    }
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
