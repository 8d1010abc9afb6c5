// SPDX-License-Identifier: MIT
// What `linear` is made of: activations in the form its products read, and the integer product (the
// one in floats is kernels/gemm.h). An output element is always the same sequence of operations,
// however many tokens share the call.
#pragma once
#include <cstdint>

#include "backend/backend.h"

namespace nibble::cpu {

// Where results go: out[n][r] = acc * row_scale[r], in out's storage type.
struct LinearOutput {
  Tensor out;
  const float* row_scale;  // null: 1
};

// Int8 activations in the order the kernel reads them: groups of `group` tokens, in a group tile
// by tile (64 columns), in a tile token by token.
struct Int8Tile {
  int8_t q[64];
  int32_t correction[4];  // per 16 columns: -12 * sum of q, because weights are stored plus 12
  float scale[2];         // per 32 columns: the int8 scale * 128 (see linear_nvfp4_int8.cpp)
  float unused[2];
};
static_assert(sizeof(Int8Tile) == 96);
struct Int8Rows {
  const Int8Tile* tiles;
  int64_t group, count, tiles_across;
};
// Up to kFewTokens have a kernel of their own, which takes up to eight at once; more are taken four
// at a time. (At 16, decoding apart from multiplying costs more than it saves: the weights' way
// from memory is then not hidden.)
constexpr int64_t kFewTokens = 16;
constexpr int64_t int8_group(int64_t n) { return n > kFewTokens ? 4 : n >= 5 ? 8 : n >= 3 ? 4 : n; }

// activations.cpp: rows [begin, end) of x. Pairs of bf16 (kernels/gemm.h) are moved as floats.
void rows_to_float(const Tensor& x, float* out, int64_t begin, int64_t end);
void rows_to_pairs(const Tensor& x, float* out, int64_t begin, int64_t end);
void rows_to_int8(const Tensor& x, Int8Tile* out, int64_t group, int64_t begin, int64_t end);

// Strips [strip_begin, strip_end) of a packed weight, tokens [token_begin, token_end).
// token_begin is a multiple of the group size; scratch: int8_scratch_bytes(tokens), 64-aligned.
void nvfp4_int8_strips(const LinearOutput& o, const Int8Rows& x, const LinearWeight& w,
                       int64_t strip_begin, int64_t strip_end, int64_t token_begin,
                       int64_t token_end, std::byte* scratch);
// Columns of a decoded piece of weights, in tiles: two strips of it take 16 KiB, a third of a
// first-level cache.
constexpr int64_t kChunkTiles = 8;
constexpr size_t int8_scratch_bytes(int64_t tokens) {
  return size_t(2 * 16 * (kChunkTiles * 64 + 4 * kChunkTiles * 4 + tokens * 4));
}
// How far ahead of its use a weight is fetched.
constexpr int64_t kPrefetchBytes = 4 * 576;

}  // namespace nibble::cpu
