// SPDX-License-Identifier: MIT
// What the kernel of a whole token is told: the model's layers, and where the ops it replaces would
// have read and written.
#pragma once
#include <cstdint>

#include "backends/cuda/context.h"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/attention_common.cuh"

namespace nibble::cuda {

constexpr int kTokenThreads = 512;
constexpr int kTokenLayers = 64;
// Elements of the residual a thread keeps: packs of eight.
constexpr int kTokenMaxPacks = 2;

struct TokenWeight {
  const uint8_t* packed;
  const float* row_scale;  // or null
};

struct TokenLayer {
  TokenWeight qkv, attn_out, gate_up, down;
  AnyFloats attn_norm, q_norm, k_norm, ffn_norm;
  void *cache_k, *cache_v;
};

struct TokenArgs {
  int layers, width, q_heads, kv_heads, ffn, vocab;
  const bf16* x;  // [width]
  // Between blocks: [(Hq + 2 Hkv) 128], [Hq 128], [width], [ffn].
  bf16 *qkv, *att, *sum, *act;
  AnyFloats logits;  // [vocab]
  AnyFloats rope;
  int64_t k_stride, v_stride;  // of the cache, in elements
  const int32_t* slot;         // [1]
  const Sequence* sequence;    // [1]
  float* share_sums;           // of attention_shares.cuh
  float2* share_stats;
  unsigned *share_done, *barrier;
  int splits;
  unsigned ahead;  // which products' weights are fetched to the L2 cache, and when
  float scale, eps;
  TokenLayer layer[kTokenLayers + 1];  // behind the last: the head as qkv, the final norm
};

// token_kernel.cu. f8 says whether the cache is f8_e4m3 or bf16. False: it does not fit this
// device.
bool launch_token(const Context& c, TokenArgs& a, bool f8_cache);

}  // namespace nibble::cuda
