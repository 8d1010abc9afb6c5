// SPDX-License-Identifier: MIT
// What ops are given beside plain tensors: views of weights, heads and the cache.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace nibble {

// Where the keys and values of one layer live. In training it is the layer's own activations, in
// inference the cache; both are [slots, Hkv, D] and may be strided in dimension 0.
struct KvView {
  Tensor k, v;
};

// Fields of one row of the sequence table, an i32 tensor [S, 4]. A sequence has q_len new tokens,
// rows q_begin.. of the batch, whose keys are the last of kv_len slots from kv_begin on: token i
// attends to slots kv_begin .. kv_begin + kv_len - q_len + i. So a chunk of several tokens on a
// non-empty cache is causal inside the chunk.
struct Sequence {
  int32_t q_begin, q_len, kv_begin, kv_len;
};
static_assert(sizeof(Sequence) == 16);

// W [out, in] of a linear layer in backend memory: dense, or packed NVFP4 in the backend's own
// layout (made by pack_rows from the canonical one).
struct LinearWeight {
  int64_t out = 0, in = 0;
  Tensor dense;      // [out, in] f32, bf16 or f16 (reference: act); empty when packed
  Tensor packed;     // u8 [packed_bytes(out, in)]; empty when dense
  Tensor row_scale;  // f32 [out] or empty: per-tensor global scales, applied to the output
  bool is_packed() const { return bool(packed); }
};

// Packed layouts keep row ranges that begin at multiples of this contiguous (rows_of).
constexpr int64_t kRowPanel = 64;

// Outputs of split_heads. q act [N, Hq, D], k act [N, Hkv, D]; rstd stat [N Hq], [N Hkv] or empty
// (always empty where heads are not normalised).
struct HeadSlots {
  Tensor q, q_rstd, k, k_rstd;
};

// The pairs (i, i + D/2) of a head that hardly turn over all positions of a model: those from
// `begin` on. Their bias is nearly the same in every key, and what all keys have in common no
// softmax can see: keys are held without it. Real biases are largest just there (456 in a Qwen2.5
// model), and a key that carries them has no bits left in bf16, none at all in fp8.
struct StillPairs {
  int64_t begin = INT32_MAX;  // none
  float factor = 1;           // RopeFrequencies::factor
};

// What a model has between the qkv projection and attention. Never norms and a bias at once.
struct HeadParams {
  Tensor q_norm{}, k_norm{};  // f32 (or act) [D] each, or both empty: heads are not normalised
  Tensor bias{};              // f32 (or act) [(Hq + 2 Hkv) D] of q, k, v, or empty
  StillPairs still{};         // of the key's bias
};

}  // namespace nibble
