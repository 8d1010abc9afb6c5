// SPDX-License-Identifier: MIT
// Runs of a small model on the CPU: settings, batches, and every bit a run has.
#pragma once
#include "support/train_toy.h"

namespace nibble::test {

// Large enough for int8 moments and bf16 masters (matrices of 4096 elements and more).
inline Config train_config(bool tied = true, ToyFamily family = ToyFamily::qwen3) {
  Config c = of_family(toy_config(), family);
  c.C = 64;
  c.Hq = 4;
  c.Hkv = 4;
  if (family == ToyFamily::qwen2) c.C = 224, c.D = 32, c.Hq = 7, c.Hkv = 1;
  if (family == ToyFamily::llama) c.C = 144, c.D = 16, c.Hq = 9, c.Hkv = 3;
  c.F = 128;
  c.V = 200;
  c.tied = tied;
  return c;
}

inline TrainSettings default_settings() {
  TrainSettings s;
  s.schedule.lr = 1e-3;
  s.schedule.steps = 100;
  s.optimizer.weight_decay = 0.01;
  s.seed = 7;
  set_capacity(s, 64, 8);
  s.logits_bytes = 64 * 4 * 128;  // two pieces of the vocabulary
  return s;
}

// Codes and scales of a parameter's NVFP4 copy, where it has one.
inline void add_packed_bits(TrainState& state, const ParamSpec& p, std::vector<std::byte>& bits) {
  if (!state.has_packed(p)) return;
  std::vector<uint8_t> codes(size_t(p.numel() / 2)), scales(size_t(p.numel() / 16));
  state.read_packed(p, 0, p.shape[0], codes, scales);
  for (const uint8_t b : codes) bits.push_back(std::byte(b));
  for (const uint8_t b : scales) bits.push_back(std::byte(b));
}

// Every bit a run has: masters, moments, NVFP4 codes.
inline std::vector<std::byte> all_bits(TrainState& state) {
  std::vector<std::byte> bits;
  const auto add = [&](Tensor t) {
    const size_t at = bits.size();
    bits.resize(at + t.bytes());
    state.backend().download(bits.data() + at, t);
  };
  for (size_t i = 0; i < state.groups().table.size(); ++i) {
    const ParamSpec& p = state.groups().table[i];
    if (state.master_of(p)) add(state.master_of(p));
    const Moments& m = state.tensors().moments[i];
    if (m.m) add(m.m), add(m.v);
    add_packed_bits(state, p, bits);
  }
  return bits;
}

inline PackedBatch batch_of_step(const Config& c, int64_t step, int64_t micro = 0) {
  return random_batch({9, 17, 5}, c.V, uint64_t(step * 10 + micro + 1));
}

}  // namespace nibble::test
