// SPDX-License-Identifier: MIT
#include "eval/check_prompts.h"

#include <fmt/ranges.h>

#include "core/rng.h"
#include "tokenizer/chat_template.h"

namespace nibble {
namespace {

std::vector<int32_t> random_ids(uint64_t seed, uint64_t stream, int64_t n, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(int32_t(philox(seed, stream, uint64_t(i))[0] % uint64_t(vocabulary)));
  }
  return ids;
}

// A user turn up to where the reply begins. What the user says can hold no control tokens. A
// tokenizer without the chat's tokens is asked in plain text.
std::vector<int32_t> user_turn(const Tokenizer& t, std::string_view text) {
  if (!t.im_start() || !t.im_end()) return t.encode(text, SpecialTokens::plain);
  return encode_turn(t, text, {}, ContentTokens::plain);
}

std::vector<int32_t> end_of_reply(const Tokenizer& t) {
  return t.im_end() ? t.encode(kTurnEnd) : t.encode("\n");
}

}  // namespace

std::vector<CheckPrompt> check_prompts(const CheckOptions& o, const Runtime& r) {
  const std::vector<std::string> texts = {o.prompt, "談談UFO", "我是誰"};
  std::vector<CheckPrompt> prompts;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == 0 && o.input_ids) {
      prompts.push_back({fmt::format("{}", fmt::join(*o.input_ids, ",")), *o.input_ids});
    } else if (r.tokenizer) {
      prompts.push_back({texts[i], user_turn(*r.tokenizer, texts[i])});
    } else {
      std::vector<int32_t> ids = random_ids(o.sample.seed, i, 16, r.model.config.V);
      std::string text = fmt::format("{}", fmt::join(ids, ","));
      prompts.push_back({std::move(text), std::move(ids)});
    }
  }
  return prompts;
}

std::vector<int32_t> second_turn(const CheckOptions& o, const Runtime& r) {
  if (!r.tokenizer) return random_ids(o.sample.seed, 9, 11, r.model.config.V);
  std::vector<int32_t> ids = end_of_reply(*r.tokenizer);
  const std::vector<int32_t> turn = user_turn(*r.tokenizer, "談談UFO");
  ids.insert(ids.end(), turn.begin(), turn.end());
  return ids;
}

std::string reply_text(const Runtime& r, std::span<const int32_t> ids) {
  return r.tokenizer ? r.tokenizer->decode(ids, DecodeSpecial::skip)
                     : fmt::format("{}", fmt::join(ids, ","));
}

TurnEncoder make_turn_encoder(const Runtime& r) {
  const Tokenizer t = r.require_tokenizer();
  TurnEncoder e;
  e.encode = [t](std::string_view text) { return t.encode(text, SpecialTokens::plain); };
  e.user_turn = [t](std::string_view text) { return user_turn(t, text); };
  e.end_of_reply = end_of_reply(t);
  e.decode = [t](std::span<const int32_t> ids) { return t.decode(ids, DecodeSpecial::skip); };
  e.stop_ids = r.stop_ids();
  return e;
}

}  // namespace nibble
