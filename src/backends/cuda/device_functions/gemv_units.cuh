// SPDX-License-Identifier: MIT
// GEMV on tensor cores, y = W x with packed NVFP4 weights and one token: what gemv.cu (one product
// a launch) and decode/ (a whole token a launch) share.
//
// mma.m16n8k16 has eight columns of B where one token needs one. They keep the scale blocks apart
// instead: B is zero except in lanes (2 q, q) and (2 q + 1, q), which hold blocks 2 q and 2 q + 1
// of the token. In a product with the codes of blocks 2 q, D[row][2 q] is the unscaled sum of that
// block, in one with those of blocks 2 q + 1, D[row][2 q + 1] is; the other columns are unused.
// Both arrive in the lane that holds that row's scales: one fp32 multiply-add a block. Codes become
// operands by shifts alone (packed_layout.cuh); x is kept times kTokenScale to undo their tiny
// exponent.
//
// Split-K: the units of a strip are divided along K into quarters and these into parts of at most
// kUnitsInFlight units, by a rule that knows their number alone. One warp sums a part; parts of a
// quarter, then quarters, are added in order. So an output has the same bits whatever kernel, grid,
// cluster or fusion it comes from.
#pragma once
#include "backends/cuda/device_functions/dequantize.cuh"
#include "backends/cuda/device_functions/mma.cuh"
#include "backends/cuda/device_functions/packed_unit.cuh"

namespace nibble::cuda {

constexpr int kUnitsInFlight = 5;

// Headroom on both sides: |x| from 2^-60 to 2^63 is exact.
template <class T>
inline constexpr float kTokenScale = std::is_same_v<T, f16> ? 1.0f : 0x1p64f;

// The split-K division of a strip of `units` units. Short quarters get three parts rather than two,
// so that a block with few strips has work for its warps. A part may be empty.
struct StripSplitK {
  static constexpr int kQuarters = 4;
  int units, parts;  // parts of a quarter

  NIBBLE_HOST_DEVICE constexpr explicit StripSplitK(int units) : units(units) {
    const int most = (units + kQuarters - 1) / kQuarters;
    const int needed = (most + kUnitsInFlight - 1) / kUnitsInFlight;
    parts = needed == 2 ? 3 : needed;
  }
  NIBBLE_HOST_DEVICE constexpr int part_count() const { return kQuarters * parts; }
  NIBBLE_HOST_DEVICE constexpr int quarter_begin(int quarter) const {
    return units * quarter / kQuarters;
  }
  // First unit of part `part`, which is part `part` % parts of quarter `part` / parts.
  NIBBLE_HOST_DEVICE constexpr int begin(int part) const {
    const int quarter = part / parts, first = quarter_begin(quarter);
    return first + (quarter_begin(quarter + 1) - first) * (part - quarter * parts) / parts;
  }
};

// The units of one part of one strip.
struct UnitRange {
  const uint8_t* p = nullptr;  // its first unit
  int first = 0, count = 0;    // its place along K, in units; 0: nothing
};

// Loads all units of a part into registers.
__device__ __forceinline__ void load_units(Unit (&units)[kUnitsInFlight], UnitRange r, int lane) {
#pragma unroll
  for (int i = 0; i < kUnitsInFlight; ++i) {
    if (i < r.count) units[i].load(r.p + i * int(kUnitBytes), lane);
  }
}

template <class T>
__device__ __forceinline__ void mma_k32(float (&d)[4], uint32_t row, uint32_t row8, uint32_t x0,
                                        uint32_t x1, uint32_t x2, uint32_t x3) {
  uint32_t a[4], b[4];
  decode_as<T>(row, a);
  decode_as<T>(row8, b);
  mma<T>(d, a[0], b[0], a[1], b[1], x0, x1);
  mma<T>(d, a[2], b[2], a[3], b[3], x2, x3);
}

// Where a lane reads its B fragment of x in shared memory: its block of each unit, or zeros.
struct TokenLane {
  const uint4* first;  // two, of unit 0
  int step;            // to the next unit

  __device__ __forceinline__ TokenLane(const uint4* token, const uint4* zeros, int lane) {
    const int g = lane / 4, q = lane % 4;
    const bool mine = g / 2 == q;
    first = mine ? token + 2 * g : zeros;
    step = mine ? 16 : 0;
  }
  __device__ __forceinline__ const uint4* unit(int i) const { return first + i * step; }
};

template <class T>
__device__ __forceinline__ void multiply(const Unit& u, const uint4* x, float& acc0, float& acc1) {
  float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
  const uint4 x0 = x[0], x1 = x[1];
  mma_k32<T>(d, u.a0.x, u.a1.x, x0.x, x0.y, x0.z, x0.w);
  mma_k32<T>(e, u.a0.z, u.a1.z, x0.x, x0.y, x0.z, x0.w);
  mma_k32<T>(d, u.a0.y, u.a1.y, x1.x, x1.y, x1.z, x1.w);
  mma_k32<T>(e, u.a0.w, u.a1.w, x1.x, x1.y, x1.z, x1.w);
  const float2 s = e4m3x2_to_float2(u.scales), s8 = e4m3x2_to_float2(u.scales >> 16);
  acc0 = fmaf(s.x, d[0], acc0);
  acc0 = fmaf(s.y, e[1], acc0);
  acc1 = fmaf(s8.x, d[2], acc1);
  acc1 = fmaf(s8.y, e[3], acc1);
}

// Sums over the quad (four lanes) of a row: acc0 of row g, acc1 of row g + 8. Lane q = 0 gets the
// first, lane 1 the second; two shuffles, since two lanes exchange what the other needs.
__device__ __forceinline__ float reduce_quad(float acc0, float acc1, int q) {
  float v = q % 2 ? acc1 : acc0;
  v += __shfl_xor_sync(0xffffffffu, q % 2 ? acc0 : acc1, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
// The 16 row sums of a warp to sums[16].
__device__ __forceinline__ void store_strip_sums(float acc0, float acc1, int lane, float* sums) {
  const int g = lane / 4, q = lane % 4;
  const float v = reduce_quad(acc0, acc1, q);
  if (q < 2) sums[g + 8 * q] = v;
}

// The 16 row sums of a part to sums[16]; registers of each unit are reloaded from part `next` as
// soon as they are free.
template <class T>
__device__ __forceinline__ void accumulate_part(Unit (&units)[kUnitsInFlight], UnitRange r,
                                                UnitRange next, const TokenLane& x, int lane,
                                                float* sums) {
  float acc0 = 0, acc1 = 0;
#pragma unroll
  for (int i = 0; i < kUnitsInFlight; ++i) {
    if (i < r.count) {
      multiply<T>(units[i], x.unit(r.first + i), acc0, acc1);
    }
    if (i < next.count) units[i].load(next.p + i * int(kUnitBytes), lane);
  }
  store_strip_sums(acc0, acc1, lane, sums);
}

// One output row from the partial sums [4 * parts][16] of its strip, in order.
template <class T>
__device__ __forceinline__ float reduce_parts(const float* sums, int parts, int row) {
  constexpr float kFactor = 1.0f / (kCodeScale<T> * kTokenScale<T>);
  float quarter[StripSplitK::kQuarters] = {}, v = 0;
#pragma unroll 1
  for (int p = 0; p < parts; ++p) {
#pragma unroll
    for (int q = 0; q < StripSplitK::kQuarters; ++q) {
      quarter[q] += sums[(q * parts + p) * int(kUnitRows) + row];
    }
  }
#pragma unroll
  for (int q = 0; q < StripSplitK::kQuarters; ++q) v += quarter[q];
  return v * kFactor;
}

// x times kTokenScale into shared memory, zero-padded, by `threads` threads. All of a thread's
// loads come before its first store. aligned: x may be read 16 bytes at a time.
template <class T>
__device__ __forceinline__ void stage_token(T* xs, const T* x, int in, int units, bool aligned,
                                            int threads) {
  constexpr int kBatch = 5;
  const int t = int(threadIdx.x), count = units * int(kUnitCols);
  if (!aligned) {
    for (int i = t; i < count; i += threads) {
      const float v = i < in ? to_f32(x[i]) : 0.0f;
      xs[i] = from_f32<T>(v * kTokenScale<T>);
    }
    return;
  }
  const uint32_t scale = broadcast_pair<T>(kTokenScale<T>);
  for (int first = t; first < count / 8; first += kBatch * threads) {
    uint4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * threads;
      v[b] = make_uint4(0, 0, 0, 0);
      if (8 * i < in) v[b] = __ldcg(reinterpret_cast<const uint4*>(x) + i);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * threads;
      if constexpr (kTokenScale<T> != 1.0f) {
        v[b].x = multiply_pair<T>(v[b].x, scale), v[b].y = multiply_pair<T>(v[b].y, scale);
        v[b].z = multiply_pair<T>(v[b].z, scale), v[b].w = multiply_pair<T>(v[b].w, scale);
      }
      if (i < count / 8) reinterpret_cast<uint4*>(xs)[i] = v[b];
    }
  }
}

// Two elements of x as staged.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair) {
  return multiply_pair<bf16>(pair, broadcast_pair<bf16>(kTokenScale<bf16>));
}

// silu(gate) * up, both rounded to T before.
template <class T>
__device__ __forceinline__ T swiglu_of(T gate, T up) {
  const float g = to_f32(gate);
  return from_f32<T>(g * sigmoid(g) * to_f32(up));
}

}  // namespace nibble::cuda
