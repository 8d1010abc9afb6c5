// SPDX-License-Identifier: MIT
// Which of several continuations a model finds most likely.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "eval/damage/choice_file.h"
#include "eval/probe_score.h"
#include "eval/text_loss.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// A question as tokens.
struct EncodedQuestion {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> choices;  // at least one token each
};
// The prompt is encoded by itself; a choice is what the joined text has beyond as many tokens
// (white space at the end of the question belongs to the choice). FormatError where nothing is left
// of one.
std::vector<EncodedQuestion> encode_questions(const ChoiceSet& set, const Tokenizer& tokenizer);

struct ChoiceResult {
  std::vector<double> log_likelihood;  // of each choice, nats
  bool greedy = false;         // the first choice is what the model would say, token by token
  int64_t best = 0;            // most likely
  int64_t best_by_length = 0;  // most likely for its characters
};
// Prompts go through the model once for all their choices, those of many questions in one pass.
// Several readers of one model, each with a backend of its own, share the questions.
std::vector<ChoiceResult> score_choices(TextReaders readers, const ChoiceSet& set,
                                        std::span<const EncodedQuestion> encoded);
inline std::vector<ChoiceResult> score_choices(const TextReader& reader, const ChoiceSet& set,
                                               std::span<const EncodedQuestion> encoded) {
  return score_choices(TextReaders(&reader, 1), set, encoded);
}

struct ChoiceScore {
  Score plain;                     // last words: said greedily
  Score by_length;                 // of likelihoods divided by the characters of the choice
  double mean_log_likelihood = 0;  // of the right choice
  int64_t tokens = 0;              // fed: prompts once, choices without their last token
};
ChoiceScore score_of(const ChoiceSet& set, std::span<const EncodedQuestion> encoded,
                     std::span<const ChoiceResult> results);
bool is_right(const ChoiceSet& set, size_t question, const ChoiceResult& result);

struct ChoiceChanges {
  int64_t changed = 0;        // another choice (last words: right where it was wrong, or not)
  int64_t lost = 0, won = 0;  // right before and wrong now; the other way round
};
ChoiceChanges changes_of(const ChoiceSet& set, std::span<const ChoiceResult> before,
                         std::span<const ChoiceResult> after);

}  // namespace nibble
