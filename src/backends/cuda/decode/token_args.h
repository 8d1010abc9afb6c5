// SPDX-License-Identifier: MIT
// Arguments of token_kernel.cuh: the model's layers, where the ops it replaces would have read and
// written, how the grid divides the work, and the map of a block's shared memory.
#pragma once
#include <cstdint>

#include "backends/cuda/context.h"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/attention/attention_common.cuh"

namespace nibble::cuda {

// Twelve warps: 168 registers each, and one warp for each quarter of K of three strips.
constexpr int kTokenWarps = 12;
constexpr int kTokenThreads = 32 * kTokenWarps;
constexpr int kTokenLayers = 64;
constexpr int kTokenMaxWidth = 8192;
constexpr int kTokenNarrow = 8 * kTokenThreads;  // up to here a thread has one pack of a row

// The products of a layer, and the head.
enum Phase { kQkv, kAttnOut, kGateUp, kFfnDown, kLayerPhases, kLogits = kLayerPhases, kPhases };

struct TokenWeight {
  const uint8_t* packed;
  const float* row_scale;  // or null
};

struct TokenLayer {
  TokenWeight weight[kLayerPhases];
  AnyFloats attn_norm;
  AnyFloats q_norm;  // or null; in a model that has biases of heads: those of q, k, v
  AnyFloats k_norm, ffn_norm;
  void *cache_k, *cache_v;
};

// Byte offsets in a block's shared memory.
struct TokenMemory {
  int layers, ring, ring_barriers;
  int tasks;           // [kTokenWarps][tasks_per_warp]
  int tasks_per_warp;  // at most, in a layer and the head together
  int sums[kPhases], barriers[kLayerPhases];
  int zeros;
  int x_full, x_slice;  // x of qkv, gate_up and head; this rank's columns of x of attn_out and down
  int attention;  // attention's stages and heads; the partial sums of the head in the last phase
  int bytes;
};

struct TokenArgs {
  int layers, width, q_heads, kv_heads, head_width, ffn, vocab;
  const bf16* x;  // [width]
  // Activations between blocks, as sentinel words of two elements (sentinel_words.cuh): [(Hq + 2
  // Hkv) D], [Hq D], [width], [ffn], [width] of the first layer; the next layer's are layer_words
  // further.
  uint32_t *qkv, *att, *out, *act, *down;
  int layer_words;
  // Split-KV partials, as flagged words (flagged_words.cuh), reused by all layers.
  uint64_t* partials;  // [Hq, splits, D] unnormalised outputs, one float a word
  uint64_t* stats;     // [Hq, splits, 2] row maximum and row sum
  uint4* cleared;      // all exchange words, `to_clear` times 16 bytes
  int to_clear;
  unsigned* arrivals;  // [2] blocks past the prologue, blocks that ended; zero between launches
  AnyFloats logits;    // [vocab]
  AnyFloats rope;
  int64_t k_stride, v_stride;  // of the cache, in elements
  const int32_t* slot;         // [1]
  const Sequence* sequence;    // [1]
  int splits, cluster;
  float scale, eps;
  int still;  // StillPairs of a key's bias
  float still_factor;
  TokenMemory memory;
  TokenLayer layer[kTokenLayers + 1];  // behind the last: the head (as qkv) and the final norm
};

// token_kernel_64.cu, token_kernel_128.cu: by head width. f8_cache: the cache is f8_e4m3, else
// bf16. bias: heads have one. False: it does not fit this device. plan_only: all but the launch.
enum class TokenLaunch { plan_only, enqueue };
bool launch_token_64(const Context& c, TokenArgs& a, bool f8_cache, bool bias, TokenLaunch launch);
bool launch_token_128(const Context& c, TokenArgs& a, bool f8_cache, bool bias, TokenLaunch launch);

}  // namespace nibble::cuda
