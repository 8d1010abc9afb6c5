// SPDX-License-Identifier: MIT
#include "generate/generator.h"

namespace nibble {

GenerateResult generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& o,
                        const TokenCallback& on_token) {
  GenerateResult result;
  ReplyProgress reply(o, on_token);
  // In replay the sequence is kept here and run from its beginning for every token.
  std::vector<int32_t> sequence = engine.tokens();
  sequence.insert(sequence.end(), prompt.begin(), prompt.end());
  if (o.replay) engine.reset();
  const bool fed = engine.feed(o.replay ? std::span<const int32_t>(sequence) : prompt,
                               [&] { return reply.timed_out() || (o.cancel && o.cancel()); });
  int32_t id = fed ? engine.sample(o.sample, reply.next_draw()) : -1;
  result.timing.prompt_tokens = int64_t(prompt.size());
  result.timing.prefill_s = reply.seconds();
  if (!fed) {
    result.reason = reply.timed_out() ? FinishReason::timeout : FinishReason::cancelled;
    return result;
  }
  std::optional<FinishReason> reason;
  while (!(reason = reply.take(id, engine.room()))) {
    if (o.replay) {
      sequence.push_back(id);
      engine.reset();
      engine.feed(sequence);
      id = engine.sample(o.sample, reply.next_draw());
    } else {
      const Follow follow = reply.tokens_left() > 1 ? Follow::chosen : Follow::unknown;
      id = engine.step(id, o.sample, reply.next_draw(), follow);
    }
  }
  result.ids = reply.ids();
  result.reason = *reason;
  result.timing.generated_tokens = int64_t(result.ids.size());
  result.timing.decode_s = reply.seconds() - result.timing.prefill_s;
  return result;
}

}  // namespace nibble
