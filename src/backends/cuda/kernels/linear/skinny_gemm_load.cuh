// SPDX-License-Identifier: MIT
// Loads a block's K slice of the activations into shared memory for skinny_gemm_wgmma.cu, in the
// core-matrix order of wgmma's B operand permuted to the packed layout.
//
// Bound by L2 bandwidth: with 32 tokens every block reads 33 to 83 KB, all of them together up to
// 11 MB. A loop that computes an address for every 16 bytes took 300 instructions a warp and two
// round trips where this one takes 150 and one.
#pragma once
#include "backends/cuda/device_functions/packed_unit.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_plan.h"

namespace nibble::cuda {

// The tokens of a unit of 128 columns in shared memory: four pieces of 32 columns, each of two k16
// steps, each of two halves of 8 columns, each of core matrices of 8 tokens by 16 bytes. A weight
// lane of quad position q has columns 32 q ..: word q of the 16 bytes. Padding keeps the writes of
// a warp free of bank conflicts (sizes: skinny_gemm_plan.h).
template <int kTokens>
__device__ __forceinline__ uint32_t x_address(uint32_t xs, int unit, int token, int piece) {
  return xs + uint32_t(unit * unit_bytes(kTokens) + piece % 4 * piece_bytes(kTokens) + token * 16 +
                       piece / 4 * 4);
}
template <int kTokens>
__device__ __forceinline__ void stage(uint32_t to, const uint4& v) {
#pragma unroll
  for (int k = 0; k < 4; ++k) store_word(to + uint32_t(k * half_bytes(kTokens)), word_of(v, k));
}

// Loads all tokens, `count` units of columns from unit `begin` on. A warp takes two tokens of five
// units at a time, so that nearly all addresses are immediate offsets, and three times that in
// flight, so that 32 tokens are one round trip. Tokens behind the last repeat it: their results are
// not written.
template <class T, int kTokens>
class ActivationLoader {
 public:
  __device__ __forceinline__ ActivationLoader(uint32_t xs, const ClusterGemmArgs& j, int begin,
                                              int count)
      : j_(j), xs_(xs), count_(count), warps_(4 * unsigned(j.groups)) {
    x_ = static_cast<const T*>(j.x) + begin * int(kUnitCols) + 8 * (threadIdx.x % 16);
    set_addresses(threadIdx.x / 32);
  }
  // meanwhile() is called once, while the first loads are in flight.
  template <class Meanwhile>
  __device__ __forceinline__ void read(Meanwhile&& meanwhile) {
    const unsigned tasks = unsigned(count_ + kUnits - 1) / kUnits * kTokenPairs;
    for (unsigned task = threadIdx.x / 32;;) {
      uint4 v[kAtOnce][kUnits];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
#pragma unroll
        for (int k = 0; k < kUnits; ++k) {
          if (k >= left_[s]) continue;
          v[s][k] = __ldcg(reinterpret_cast<const uint4*>(from_[s] + k * kUnitCols));
        }
      }
      if (task < warps_) meanwhile();
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
#pragma unroll
        for (int k = 0; k < kUnits; ++k) {
          if (k < left_[s]) stage<kTokens>(to_[s] + uint32_t(k * unit_bytes(kTokens)), v[s][k]);
        }
      }
      task += kAtOnce * warps_;
      if (task >= tasks) break;
      set_addresses(task);
    }
  }

 private:
  static constexpr int kTokenPairs = kTokens / 2, kUnits = 5, kAtOnce = 3;

  __device__ __forceinline__ void set_addresses(unsigned task) {
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s, task += warps_) {
      const int unit = int(task / kTokenPairs) * kUnits;
      const int token = int(task % kTokenPairs * 2 + threadIdx.x % 32 / 16);
      left_[s] = count_ - unit;
      from_[s] = x_ + min(token, j_.n - 1) * j_.x_stride + unit * int(kUnitCols);
      to_[s] = x_address<kTokens>(xs_, unit, token, int(threadIdx.x % 16));
      // Pins the address arithmetic before pdl_wait, not behind it.
      asm volatile("" : "+l"(from_[s]), "+r"(to_[s]), "+r"(left_[s]));
    }
  }

  const ClusterGemmArgs& j_;
  const T* x_;
  uint32_t xs_;
  int count_;
  unsigned warps_;
  const T* from_[kAtOnce];
  uint32_t to_[kAtOnce];
  int left_[kAtOnce];
};

// The same for a ragged last unit: 16 bytes a lane, or zeros (in % 8 == 0), kBatch loads in flight.
template <class T, int kTokens>
__device__ __forceinline__ void load_x_ragged(uint32_t xs, const ClusterGemmArgs& j, int begin,
                                              int count) {
  constexpr int kBatch = 4;
  const int piece = int(threadIdx.x) % 16, step = 8 * j.groups;
  const T* const x = static_cast<const T*>(j.x);
#pragma unroll 1
  for (int first = int(threadIdx.x) / 16; first < count * kTokens; first += kBatch * step) {
    uint4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * step, token = i % kTokens;
      const int col = (begin + i / kTokens) * int(kUnitCols) + 8 * piece;
      v[b] = make_uint4(0, 0, 0, 0);
      if (i < count * kTokens && col < j.in) {
        v[b] = __ldcg(reinterpret_cast<const uint4*>(x + min(token, j.n - 1) * j.x_stride + col));
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * step;
      if (i < count * kTokens) {
        stage<kTokens>(x_address<kTokens>(xs, i / kTokens, i % kTokens, piece), v[b]);
      }
    }
  }
}

// The same for unaligned rows.
template <class T, int kTokens>
__device__ __forceinline__ void load_x_one_by_one(uint32_t xs, const ClusterGemmArgs& j, int begin,
                                                  int count) {
  const int lane = int(threadIdx.x) % 32, piece = lane % 16;
#pragma unroll 1
  for (int i = int(threadIdx.x) / 16; i < count * kTokens; i += 8 * j.groups) {
    const int unit = i / kTokens, token = i % kTokens;
    const int col = (begin + unit) * int(kUnitCols) + 8 * piece;
    const T* const x = static_cast<const T*>(j.x) + min(token, j.n - 1) * j.x_stride;
    Pack<T, 8> values;
#pragma unroll
    for (int k = 0; k < 8; ++k) values.v[k] = col + k < j.in ? x[col + k] : from_f32<T>(0);
    stage<kTokens>(x_address<kTokens>(xs, unit, token, piece), *reinterpret_cast<uint4*>(&values));
  }
}

}  // namespace nibble::cuda
