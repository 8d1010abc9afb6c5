// SPDX-License-Identifier: MIT
// What two models say about a text: the loss of both, how far their predictions lie apart, token by
// token, and where most.
#pragma once
#include <vector>

#include "eval/text_loss.h"

namespace nibble {

// A token the two predicted most differently.
struct MovedToken {
  int64_t window = 0, at = 0;  // windows.ids[window][at] is what they were to predict
  double divergence = 0;       // nats
  double base_loss = 0, loss = 0;
  int32_t base_top = 0, top = 0;  // what each thinks most likely
  double base_top_probability = 0, top_probability = 0;
};

struct TextComparison {
  TextLoss base, model;
  TextLoss change;                // loss of the model less that of the base, token by token
  TextLoss divergence;            // KL(base || model) in nats instead of the loss
  int64_t agreed = 0;             // tokens for which both think the same most likely
  double agreement = 0;           // as a share
  std::vector<MovedToken> moved;  // by divergence, largest first
};

// Both read the same windows, several in a pass, on one backend: the logits of neither leave it.
// Several pairs of readers, each with a backend of its own, share the windows.
// `most`: of `moved`. UsageError when their vocabularies differ.
TextComparison compare_on_text(TextReaders base, TextReaders model, const TextWindows& windows,
                               int64_t most);
inline TextComparison compare_on_text(const TextReader& base, const TextReader& model,
                                      const TextWindows& windows, int64_t most) {
  return compare_on_text(TextReaders(&base, 1), TextReaders(&model, 1), windows, most);
}

}  // namespace nibble
