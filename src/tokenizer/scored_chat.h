// SPDX-License-Identifier: MIT
// A conversation as tokens for training: which of them the model is to learn follows from what the
// template makes of it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/chat_template.h"

namespace nibble {

// A stretch of a rendering that the model is to write: from where a generation prompt ends to the
// end of the reply, its end token included.
struct ReplySpan {
  size_t begin, end;
};

// In order. A template with {% generation %} says it itself; with others the assistant's words are
// found by their origin, the beginning by rendering the conversation before them, and the end is
// the first special token behind them. Throws UsageError when a reply is not shown at all.
std::vector<ReplySpan> reply_spans(const ChatTemplate& chat, std::span<const Message> messages,
                                   std::span<const std::string> tools,
                                   const jinja::Rendering& rendering, const Tokenizer& tokenizer,
                                   std::optional<bool> thinking = {});

struct ScoredChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> scored;  // by id, 0 or 1
  int64_t last_reply = 0;       // scored tokens of the last one
};

// Up to the end of the last reply. Prompts and replies are encoded apart, as they are when the
// model answers. `learn_end` false: end tokens between turns are there but not scored, the last is
// left out.
ScoredChat encode_scored(const Tokenizer& tokenizer, const ChatTemplate& chat,
                         std::span<const Message> messages, std::span<const std::string> tools,
                         ContentTokens content, bool learn_end);

}  // namespace nibble
