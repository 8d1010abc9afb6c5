// SPDX-License-Identifier: MIT
// The prompts `nibble check` uses, as token ids.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/check_options.h"

namespace nibble {

struct CheckPrompt {
  std::string text;  // for people
  std::vector<int32_t> ids;
};

// --prompt, 談談UFO and 我是誰 as first turns of a chat; without a tokenizer, or with --input-ids,
// ids. Always three.
std::vector<CheckPrompt> check_prompts(const CheckOptions& options, const Runtime& runtime);
// A second turn, with what closes the reply before it.
std::vector<int32_t> second_turn(const CheckOptions& options, const Runtime& runtime);
// Text of a reply, or its ids without a tokenizer.
std::string reply_text(const Runtime& runtime, std::span<const int32_t> ids);

TurnEncoder make_turn_encoder(const Runtime& runtime);  // needs a tokenizer

}  // namespace nibble
