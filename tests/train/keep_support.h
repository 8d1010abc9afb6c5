// SPDX-License-Identifier: MIT
// Batches that teach some samples and keep others.
#pragma once
#include "train/run_support.h"

namespace nibble::test {

// Samples of random tokens, every row scored.
class RandomSamples {
 public:
  RandomSamples(const std::vector<int64_t>& lengths, int64_t vocabulary, uint64_t seed) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const auto tokens = random_tokens(lengths[s] + 1, vocabulary, seed * 100 + s);
      ids_.emplace_back(tokens.begin(), tokens.end());
      flags_.emplace_back(tokens.size(), kScored);
    }
    for (size_t s = 0; s < ids_.size(); ++s) samples_.push_back({ids_[s], flags_[s]});
  }
  std::span<const Sample> all() const { return samples_; }

 private:
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<uint8_t>> flags_;
  std::vector<Sample> samples_;
};

inline PackedBatch mixed_batch(const std::vector<int64_t>& taught, const std::vector<int64_t>& kept,
                               int64_t vocabulary, uint64_t seed) {
  PackedBatch b;
  pack(b, RandomSamples(taught, vocabulary, seed).all(),
       RandomSamples(kept, vocabulary, seed + 1000).all());
  return b;
}

inline TrainSettings keep_settings() {
  TrainSettings s = default_settings();
  s.keep.max_tokens = 40;
  s.keep.max_sequences = 4;
  s.keep.weight = 2;
  return s;
}

// Masters and NVFP4 codes, without the moments.
inline std::vector<std::byte> weight_bits(TrainState& state) {
  std::vector<std::byte> bits;
  for (const ParamSpec& p : state.groups().table) {
    if (const Tensor t = state.master_of(p)) {
      const size_t at = bits.size();
      bits.resize(at + t.bytes());
      state.backend().download(bits.data() + at, t);
    }
    add_packed_bits(state, p, bits);
  }
  return bits;
}

}  // namespace nibble::test
