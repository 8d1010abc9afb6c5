// SPDX-License-Identifier: MIT
// Conversations as text and tokens. One renderer (jinja/template.h) serves the model's own template
// and nibble's; training, generation, probes and the library all use it, so a model is asked the
// way it was taught.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/builtin_templates.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

enum class Role { system, user, assistant, tool };
std::string_view role_name(Role role);
Role role_from_name(std::string_view name);  // throws UsageError

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, spelled as the template shows it: by Python (python_json.h)
};

struct Message {
  Role role = Role::user;
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string reasoning = {};             // of an assistant; templates know it as reasoning_content
};

enum class GenerationPrompt { no, yes };  // yes: ends where the model's reply begins
// Whether strings like "<|im_end|>" inside contents, tool calls and tool descriptions become
// control tokens. `parse` is what Hugging Face does; `plain` keeps input from outside harmless.
// With `plain`, too, an assistant's words that are tokens without being control tokens ("<think>")
// are these tokens: the model writes them so.
using ContentTokens = SpecialTokens;

// A chat template, compiled: one of nibble's own, or what a model brings along. Immutable and cheap
// to copy; may be used from many threads at once.
class ChatTemplate {
 public:
  using TokenStrings = std::vector<std::pair<std::string, std::string>>;

  ChatTemplate(TemplateStyle style = TemplateStyle::qwen3);  // a style is a template
  // `name` is for messages; `tokens` are bos_token, eos_token and the like. Throws TemplateError.
  static ChatTemplate compile(std::string_view source, std::string name, TokenStrings tokens = {});

  const std::string& name() const { return compiled_.name(); }
  std::optional<TemplateStyle> style() const { return style_; }  // none: not one of nibble's own
  // What the template makes of it. Contents of message i have the origin kFirstMessage + i where it
  // is an assistant's, and Origin::outside otherwise. `tools` are JSON objects (OpenAI function
  // descriptions), spelled by python_json(). Throws UsageError when there is no message, and when
  // the template refuses.
  jinja::Rendering render(std::span<const Message> messages, std::span<const std::string> tools,
                          GenerationPrompt prompt, std::optional<bool> thinking) const;
  static constexpr uint32_t kFirstMessage = 2;

 private:
  explicit ChatTemplate(jinja::Template compiled) : compiled_(std::move(compiled)) {}
  jinja::Template compiled_;
  std::optional<TemplateStyle> style_;
  TokenStrings tokens_;
};

struct ChatOptions {
  ChatTemplate style;
  GenerationPrompt generation_prompt = GenerationPrompt::yes;
  std::optional<bool> thinking = {};  // enable_thinking, where it is said
};

std::string render(std::span<const Message> messages, std::span<const std::string> tools = {},
                   const ChatOptions& options = {});
// The same, encoded. With ContentTokens::parse equal to tokenizer.encode(render(...)).
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 std::span<const std::string> tools = {},
                                 const ChatOptions& options = {},
                                 ContentTokens content = ContentTokens::parse);
// Bytes [from, to) of a rendering, encoded by themselves.
std::vector<int32_t> encode_rendering(const Tokenizer& tokenizer, const jinja::Rendering& rendering,
                                      ContentTokens content, size_t from, size_t to);

// ChatML's end of a turn, and one user turn up to where the reply begins.
inline constexpr std::string_view kTurnEnd = "<|im_end|>\n";
std::string render_turn(std::string_view user_content, const ChatOptions& options = {});
std::vector<int32_t> encode_turn(const Tokenizer& tokenizer, std::string_view user_content,
                                 const ChatOptions& options = {},
                                 ContentTokens content = ContentTokens::parse);

// From the JSON of a chat request: {"role", "content", "reasoning_content", "tool_calls": [{"name",
// "arguments"} or {"function": {...}}]}. Content that is null counts as empty; arguments that are
// text are taken as they are. Throws UsageError.
Message message_from_json(const nlohmann::ordered_json& j);
std::vector<Message> messages_from_json(const nlohmann::ordered_json& list);

}  // namespace nibble
