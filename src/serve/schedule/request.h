// SPDX-License-Identifier: MIT
// What one stream of the server is asked for, as tokens: HTTP and JSON are already behind it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generate/reply.h"

namespace nibble {

// Which tokens may come next: a grammar, say. Asked by the engine's thread only.
class TokenRule {
 public:
  virtual ~TokenRule() = default;
  // Sets the logits of tokens that must not come to minus infinity. At least one is left.
  virtual void mask(std::span<float> logits) = 0;
  virtual void take(int32_t id) = 0;  // the token that was chosen
};

struct StreamRequest {
  std::vector<int32_t> prompt;
  ReplyOptions reply;
  std::vector<std::string> stop;  // texts that end the reply and are no part of it
  // Off the logits, for every time a token is in the reply already, and once for being there.
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<int32_t, float>> bias;  // onto the logits
  std::unique_ptr<TokenRule> rule;
  std::optional<int> top_logprobs;  // how many alternatives are wanted with each token
  bool prompt_logprobs = false;     // those of the prompt, too; nothing is reused then
  bool prompt_only = false;         // nothing is generated
};

struct TokenChance {
  int32_t id = 0;
  double logprob = 0;
};
// How likely a token was, by the model's own logits: before penalties, biases and temperature.
struct TokenFacts {
  TokenChance token;
  std::vector<TokenChance> top;  // the likeliest first
};

}  // namespace nibble
