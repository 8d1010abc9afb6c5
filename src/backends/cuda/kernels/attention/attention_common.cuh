// SPDX-License-Identifier: MIT
// What the attention kernels share: tensor views, the causal mask from the sequence table, the
// query-tile list of a batch of sequences of different lengths, lse of any float type.
#pragma once
#include "backend/backend.h"
#include "backends/cuda/device_functions/types.cuh"

namespace nibble::cuda {

// [rows, heads, width] in memory.
template <class T>
struct Heads {
  T* p;
  int64_t stride;  // elements between rows
  __device__ __forceinline__ T* at(int64_t row, int64_t head, int64_t width) const {
    return p + row * stride + head * width;
  }
};
template <class T>
Heads<T> heads(const Tensor& t) {
  return {ptr<T>(t), t.row_stride};
}

// The sequence table, in device memory.
struct Sequences {
  const Sequence* p;
  int count;
};
inline Sequences sequences_of(const Tensor& t) {
  return {reinterpret_cast<const Sequence*>(t.data), int(t.dim(0))};
}

// lse [N, Hq] of f32, bf16 or f16, or absent.
struct LseView {
  AnyFloats values;
  int64_t stride;
  __device__ __forceinline__ float get(int64_t token, int64_t head) const {
    return values[token * stride + head];
  }
  __device__ __forceinline__ void set(int64_t token, int64_t head, float v) const {
    if (values) values.set(token * stride + head, v);
  }
};
inline LseView lse_view(const Tensor& lse) { return {AnyFloats(lse), lse ? lse.row_stride : 0}; }

// The sequence that owns a token; for whole warps; -1: none. Tables are short.
__device__ __forceinline__ int sequence_of(const Sequences& s, int64_t token) {
  const int lane = int(threadIdx.x) % 32;
  for (int first = 0; first < s.count; first += 32) {
    bool mine = false;
    if (first + lane < s.count) {
      const Sequence q = s.p[first + lane];
      mine = token >= q.q_begin && token < int64_t(q.q_begin) + q.q_len;
    }
    const unsigned found = __ballot_sync(0xffffffffu, mine);
    if (found) return first + __ffs(int(found)) - 1;
  }
  return -1;
}
// Causal mask: the token sees slots kv_begin .. kv_begin + visible.
__device__ __forceinline__ int visible_keys(const Sequence& s, int64_t token) {
  return s.kv_len - s.q_len + int(token - s.q_begin) + 1;
}

// Query tiles of `rows` rows of all sequences, in order: which sequence and which of its tiles
// number `index` is. For whole warps; sequence -1: there are fewer. A launch has tile_limit() of
// them.
struct Tile {
  int sequence, tile, tiles;  // number `tile` of `tiles`
};
__device__ __forceinline__ Tile find_tile(const Sequences& s, int rows, int index) {
  const int lane = int(threadIdx.x) % 32;
  for (int first = 0; first < s.count; first += 32) {
    const int tiles = first + lane < s.count ? (s.p[first + lane].q_len + rows - 1) / rows : 0;
    int end = tiles;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
      const int below = __shfl_up_sync(0xffffffffu, end, o);
      if (lane >= o) end += below;
    }
    const unsigned found = __ballot_sync(0xffffffffu, index < end);
    if (found) {
      const int at = __ffs(int(found)) - 1;
      return {first + at, index - __shfl_sync(0xffffffffu, end - tiles, at),
              __shfl_sync(0xffffffffu, tiles, at)};
    }
    index -= __shfl_sync(0xffffffffu, end, 31);
  }
  return {-1, 0, 0};
}
inline unsigned tile_limit(int64_t tokens, int64_t sequences, int64_t rows) {
  // A sequence adds less than one tile to its tokens / rows.
  return unsigned(std::min<int64_t>(tokens, tokens / rows + sequences));
}

// True when every row of every head begins at a multiple of 16 bytes.
template <class... Tensors>
bool heads_aligned(const Tensors&... tensors) {
  return ((size_t(tensors.row_stride) * dtype_bytes(tensors.dtype) % 16 == 0 &&
           size_t(tensors.cols()) * dtype_bytes(tensors.dtype) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(tensors.data) % 16 == 0) &&
          ...);
}

}  // namespace nibble::cuda
