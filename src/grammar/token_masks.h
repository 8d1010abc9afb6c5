// SPDX-License-Identifier: MIT
// Which tokens may come next where a text must follow a grammar.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar_states.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// The vocabulary in the order of its bytes: what two neighbours share is looked at once. Without
// tokens that are no text (the end of a turn).
class SortedVocabulary {
 public:
  explicit SortedVocabulary(const Tokenizer& tokenizer);

  struct Word {
    std::string_view bytes;
    int32_t id;
    uint32_t shared;  // bytes it has in common with the word before
  };
  std::span<const Word> words() const { return words_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;  // whose bytes these are
  std::vector<Word> words_;
};

// One reply's way through a grammar.
class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const SortedVocabulary> vocabulary, ByteGrammar grammar,
             std::vector<int32_t> stop_ids);

  // Minus infinity for every token that may not come now. UsageError when none may.
  void apply(std::span<float> logits);
  void take(int32_t id);
  bool complete() const { return states_.complete(state_); }

 private:
  const std::vector<bool>& allowed();

  std::shared_ptr<const SortedVocabulary> vocabulary_;
  GrammarStates states_;
  std::vector<int32_t> stop_ids_;
  GrammarStates::State state_;
  // By state: inside a string it is the same again and again.
  std::unordered_map<GrammarStates::State, std::vector<bool>> masks_;
};

}  // namespace nibble
