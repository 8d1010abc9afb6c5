// SPDX-License-Identifier: MIT
#include "grammar/token_masks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace nibble {
namespace {

constexpr size_t kMostMasks = 256;

}  // namespace

SortedVocabulary::SortedVocabulary(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer_.token_bytes(id);
    if (!bytes.empty() && !tokenizer_.is_special(id)) words_.push_back({bytes, id, 0});
  }
  std::ranges::sort(words_, {}, [](const Word& w) { return std::pair(w.bytes, w.id); });
  for (size_t i = 1; i < words_.size(); ++i) {
    const auto end = std::ranges::mismatch(words_[i - 1].bytes, words_[i].bytes);
    words_[i].shared = uint32_t(end.in2 - words_[i].bytes.begin());
  }
}

TokenMasks::TokenMasks(std::shared_ptr<const SortedVocabulary> vocabulary, ByteGrammar grammar,
                       std::vector<int32_t> stop_ids)
    : vocabulary_(std::move(vocabulary)),
      states_(std::move(grammar)),
      stop_ids_(std::move(stop_ids)),
      state_(states_.start()) {}

const std::vector<bool>& TokenMasks::allowed() {
  if (const auto at = masks_.find(state_); at != masks_.end()) return at->second;
  if (masks_.size() >= kMostMasks) masks_.clear();
  std::vector<bool> mask(size_t(vocabulary_->tokenizer().vocab_size()));
  // along[i]: the state behind the first i bytes of the word at hand; as many as are alive.
  std::vector<GrammarStates::State> along{state_};
  for (const SortedVocabulary::Word& w : vocabulary_->words()) {
    // Dead within what it shares with the word before: along is shorter than that.
    if (along.size() <= w.shared) continue;
    along.resize(w.shared + 1);
    for (size_t i = w.shared; i < w.bytes.size(); ++i) {
      const GrammarStates::State to = states_.next(along.back(), uint8_t(w.bytes[i]));
      if (to == GrammarStates::kDead) break;
      along.push_back(to);
    }
    mask[size_t(w.id)] = along.size() == w.bytes.size() + 1;
  }
  return masks_.emplace(state_, std::move(mask)).first->second;
}

void TokenMasks::apply(std::span<float> logits) {
  const std::vector<bool>& mask = allowed();
  const bool may_end = complete();
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool stop = std::ranges::find(stop_ids_, int32_t(i)) != stop_ids_.end();
    const bool may = stop ? may_end : i < mask.size() && mask[i];
    any |= may;
    if (!may) logits[i] = -INFINITY;
  }
  if (!any) throw_usage("the reply cannot go on in the form that was asked for");
}

void TokenMasks::take(int32_t id) {
  for (const char c : vocabulary_->tokenizer().token_bytes(id)) {
    state_ = states_.next(state_, uint8_t(c));
    if (state_ == GrammarStates::kDead) throw_internal("token {} does not follow the grammar", id);
  }
}

}  // namespace nibble
