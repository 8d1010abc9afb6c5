// SPDX-License-Identifier: MIT
// Byte-pair encoding of one pre-token: the pair of lowest rank merges first, the leftmost among
// equals. Thread-safe after loading.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace nibble {

struct Merge {
  uint32_t left, right, rank, result;
};

// Flat hash table over (left id, right id), with a bit filter in front: most questions are about
// pairs that do not merge, and the filter (a quarter of a MiB) stays in the second-level cache.
class MergeTable {
 public:
  explicit MergeTable(size_t expected);
  bool insert(const Merge& merge);  // false: the pair was there already
  const Merge* find(uint32_t left, uint32_t right) const {
    const uint64_t h = hash(left, right);
    const uint64_t bit = h >> filter_shift_;
    if (!(filter_[bit >> 6] >> (bit & 63) & 1)) return nullptr;
    for (size_t at = h & mask_; slots_[at].rank != kFree; at = (at + 1) & mask_) {
      if (slots_[at].left == left && slots_[at].right == right) return &slots_[at];
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  static uint64_t hash(uint32_t left, uint32_t right) {
    uint64_t h = (uint64_t(left) << 32 | right) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u;
  }
  std::vector<Merge> slots_;
  std::vector<uint64_t> filter_;
  size_t mask_;
  int filter_shift_;
};

// What a whole pre-token that is itself a vocabulary entry becomes.
enum class WholeWord {
  when_merges_agree,  // only if the merges arrive there too
  always,             // the file says ignore_merges
};

class Bpe {
 public:
  static constexpr uint32_t kNoToken = UINT32_MAX;  // of a byte that the vocabulary lacks
  // `byte_ids`: the id of each single byte, or kNoToken: such bytes vanish from a text, as they do
  // in Hugging Face's tokenizers. `never_whole`: ids that plain text must not become.
  Bpe(std::array<uint32_t, 256> byte_ids, const std::vector<Merge>& merges, MergeTable table,
      WholeWord whole_word, const Vocabulary& vocabulary, const std::vector<uint32_t>& never_whole);

  // Appends the ids of one non-empty pre-token.
  void encode(std::string_view word, const Vocabulary& vocabulary, std::vector<int32_t>& out) const;

 private:
  struct Pair {
    uint32_t rank = UINT32_MAX, result = 0;
  };
  // Memory of whether a token is what the merges make of its own bytes; filled on first use. Every
  // thread that computes an entry writes the same value, so relaxed order is enough.
  enum Proof : uint8_t { unknown, whole, parts };

  Pair pair(uint32_t left, uint32_t right) const {
    const Merge* m = table_.find(left, right);
    return m ? Pair{m->rank, m->result} : Pair{};
  }
  void encode_known(std::string_view word, const Vocabulary& vocabulary,
                    std::vector<int32_t>& out) const;
  void merge_short(std::string_view word, std::vector<int32_t>& out) const;
  void merge_long(std::string_view word, std::vector<int32_t>& out) const;
  void merge(std::string_view word, std::vector<int32_t>& out) const;

  std::array<uint32_t, 256> byte_ids_;
  bool lacks_bytes_ = false;
  MergeTable table_;
  std::vector<Pair> byte_pairs_;  // [256 * 256]: the first pass over a word needs no hashing
  std::unique_ptr<std::atomic<uint8_t>[]> proofs_;
};

}  // namespace nibble
