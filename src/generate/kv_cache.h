// SPDX-License-Identifier: MIT
// Keys and values of past tokens, after QK-norm and RoPE, one pair of tensors per layer.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "model/config.h"

namespace nibble {

class KvCache {
 public:
  // Room for `slots` tokens. dtype f32, bf16, f16, f8_e4m3 (f64 on the reference backend).
  KvCache(Backend& backend, const Config& config, int64_t slots, DType dtype);
  static size_t bytes(const Config& config, int64_t slots, DType dtype);

  std::span<const KvView> views() const { return views_; }
  int64_t slots() const { return slots_; }
  DType dtype() const { return dtype_; }

 private:
  Arena arena_;
  std::vector<KvView> views_;  // per layer, [slots, Hkv, D]
  int64_t slots_;
  DType dtype_;
};

}  // namespace nibble
