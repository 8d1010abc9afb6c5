// SPDX-License-Identifier: MIT
// The one chat renderer (ChatML, Qwen3's template): training, generation and the server all use it,
// so a model is asked the way it was taught.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
};

enum class TemplateStyle {
  qwen3,
  // As the predecessor trained: a newline before "<|im_end|>" of user and system turns. Its
  // template knew a single user turn only; everything else is as in qwen3.
  predecessor,
};
enum class GenerationPrompt { no, yes };  // yes: ends with "<|im_start|>assistant\n"
// Whether strings like "<|im_end|>" inside contents, tool calls and tool descriptions become
// control tokens. `parse` is what Hugging Face does; `plain` keeps input from outside harmless.
using ContentTokens = SpecialTokens;

struct ChatOptions {
  TemplateStyle style = TemplateStyle::qwen3;
  GenerationPrompt generation_prompt = GenerationPrompt::yes;
};

// `tools` are JSON objects (OpenAI function descriptions), in order, spelled by python_json().
// Throws UsageError when there is no message.
std::string render(std::span<const Message> messages, std::span<const std::string> tools = {},
                   const ChatOptions& options = {});
// The same, encoded. With ContentTokens::parse equal to tokenizer.encode(render(...)).
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const Message> messages,
                                 std::span<const std::string> tools = {},
                                 const ChatOptions& options = {},
                                 ContentTokens content = ContentTokens::parse);

// For a conversation that lives in a cache: after the model's reply comes kTurnEnd (less what the
// model has already said itself), then the next user turn with its generation prompt. The parts
// joined are the text render() gives for the whole conversation.
inline constexpr std::string_view kTurnEnd = "<|im_end|>\n";
std::string render_turn(std::string_view user_content, const ChatOptions& options = {});
std::vector<int32_t> encode_turn(const Tokenizer& tokenizer, std::string_view user_content,
                                 const ChatOptions& options = {},
                                 ContentTokens content = ContentTokens::parse);

// From the JSON of a chat request: {"role", "content", "tool_calls": [{"name", "arguments"} or
// {"function": {...}}]}. Content that is null counts as empty; arguments that are text are taken as
// they are. Throws UsageError.
Message message_from_json(const nlohmann::ordered_json& j);
std::vector<Message> messages_from_json(const nlohmann::ordered_json& list);

}  // namespace nibble
