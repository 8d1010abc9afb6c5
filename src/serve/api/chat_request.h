// SPDX-License-Identifier: MIT
// The body of /v1/chat/completions, read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "grammar/byte_grammar.h"
#include "serve/api/common_fields.h"

namespace nibble {

struct ChatRequest {
  CommonFields common;
  std::vector<Message> messages;
  std::vector<std::string> tools;  // as render() takes them
  std::optional<bool> thinking;
  std::optional<int> top_logprobs;
  std::optional<ByteGrammar> form;  // which the reply must have

  std::vector<int32_t> prompt(const ServedModel& model) const;
};

// Throws ApiError.
ChatRequest read_chat_request(const BodyFields::Json& body, const ServedModel& model);
// The messages of a chat: OpenAI's shape, texts in parts included.
std::vector<Message> read_messages(const BodyFields::Json& list);

}  // namespace nibble
