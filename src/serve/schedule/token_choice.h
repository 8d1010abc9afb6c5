// SPDX-License-Identifier: MIT
// The next token of a request that asks for more than Backend::sample knows: penalties by count,
// biases, a rule, or how likely the tokens were. The same rule of choice (backend/sampling.h) on
// logits in host memory, so that a request without these gets the same token either way.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/sampling.h"
#include "serve/schedule/request.h"

namespace nibble {

// log(softmax) of `id`, and of the `top` likeliest.
TokenFacts token_facts(std::span<const float> logits, int32_t id, int top);

class TokenChoice {
 public:
  // `request` outlives it.
  explicit TokenChoice(const StreamRequest& request) : request_(request) {}

  // Whether logits must be brought to host memory for this request.
  bool on_host() const;
  // -1 where there is no choice. `context` is what the repetition penalty looks at. The logits are
  // changed.
  int32_t choose(std::span<float> logits, std::span<const int32_t> context, uint64_t draw);
  void take(int32_t id);  // a token of the reply

 private:
  const StreamRequest& request_;
  std::unordered_map<int32_t, int64_t> counts_;
  SampleScratch scratch_;
};

}  // namespace nibble
