// SPDX-License-Identifier: MIT
// Makes a byte-level BPE tokenizer.json from text: Qwen's normalisation, pattern and special
// tokens, so that everything written for Qwen3's tokenizer works with it. The same text in the same
// order gives the same bytes on every machine.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace nibble {

struct BpeTrainOptions {
  int32_t vocab_size = 4096;  // with bytes and special tokens; the result may be smaller
  int64_t least_count = 2;    // a pair seen less often is not merged
};

class BpeTrainer {
 public:
  void add(std::string_view text);
  // The file. A token never spans two Chinese characters: in Chinese the pattern's words are whole
  // clauses, and a small vocabulary would fill up with them. Throws UsageError.
  std::string train(const BpeTrainOptions& options) const;
  size_t words() const { return counts_.size(); }

 private:
  void count(std::string_view word);
  std::map<std::string, int64_t, std::less<>> counts_;  // ordered: the result depends on it
};

}  // namespace nibble
