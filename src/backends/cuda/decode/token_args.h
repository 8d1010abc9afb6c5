// SPDX-License-Identifier: MIT
// What the kernel of a whole token is told: the model's layers, where the ops it replaces would
// have read and written, and how its blocks share the work.
#pragma once
#include <cstdint>

#include "backends/cuda/context.h"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/attention/attention_common.cuh"

namespace nibble::cuda {

// Twelve warps: room for 168 registers each, and for the four quarters of three strips.
constexpr int kTokenWarps = 12;
constexpr int kTokenThreads = 32 * kTokenWarps;
constexpr int kTokenLayers = 64;
constexpr int kTokenMaxWidth = 8192;

// The products of a layer, and the head.
enum Phase { kQkv, kAttnOut, kGateUp, kFfnDown, kLayerPhases, kLogits = kLayerPhases, kPhases };

struct TokenWeight {
  const uint8_t* packed;
  const float* row_scale;  // or null
};

struct TokenLayer {
  TokenWeight weight[kLayerPhases];
  AnyFloats attn_norm, q_norm, k_norm, ffn_norm;
  void *cache_k, *cache_v;
};

// Where things lie in a block's shared memory, in bytes from its begin.
struct TokenMemory {
  int layers, ring, ring_barriers;
  int tasks;           // [kTokenWarps][list]
  int tasks_per_warp;  // most tasks of a warp in a layer and the head
  int sums[kPhases], barriers[kLayerPhases];
  int zeros;
  int x_full, x_slice;  // the token of qkv, gate_up and head; that of attn_out and down
  int attention;        // attention's, and the sums of the head
  int bytes;
};

struct TokenArgs {
  int layers, width, q_heads, kv_heads, ffn, vocab;
  const bf16* x;  // [width]
  // Between blocks, in words of two elements (sentinel_words.cuh): [(Hq + 2 Hkv) 128], [Hq 128],
  // [width], [ffn], [width] of the first layer; those of the next are layer_words further.
  uint32_t *qkv, *att, *out, *act, *down;
  int layer_words;
  // In tagged words (flagged_words.cuh), the same for all layers.
  uint64_t* partials;  // [Hq, splits, 128] sums of shares, a float a word
  uint64_t* stats;     // [Hq, splits, 2] their largest scores and sums of weights
  uint4* cleared;      // all of these words: so many times 16 bytes
  int to_clear;
  unsigned* arrivals;  // [2] blocks that have begun, that have ended; zero between kernels
  AnyFloats logits;    // [vocab]
  AnyFloats rope;
  int64_t k_stride, v_stride;  // of the cache, in elements
  const int32_t* slot;         // [1]
  const Sequence* sequence;    // [1]
  int splits, cluster;
  float scale, eps;
  TokenMemory memory;
  TokenLayer layer[kTokenLayers + 1];  // behind the last: the head as qkv, the final norm
};

// token_kernel.cu. f8 says whether the cache is f8_e4m3 or bf16. False: it does not fit this
// device. plan_only: all but the launch.
enum class TokenLaunch { plan_only, enqueue };
bool launch_token(const Context& c, TokenArgs& a, bool f8_cache, TokenLaunch launch);

}  // namespace nibble::cuda
