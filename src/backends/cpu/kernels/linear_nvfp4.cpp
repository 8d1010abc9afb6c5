// SPDX-License-Identifier: MIT
// NVFP4 weights times float activations: one lane per weight row, a partial sum per block of 16
// columns, the block's scale applied once to that sum.
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/linear_nvfp4.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

using DB = hn::Repartition<uint8_t, DI>;
using VB = hn::Vec<DB>;

// 2 * e2m1 as signed bytes.
alignas(16) constexpr uint8_t kCodeTable[16] = {0, 1,    2,    3,    4,    6,    8,    12,
                                                0, 0xff, 0xfe, 0xfd, 0xfc, 0xfa, 0xf8, 0xf4};

// Byte j of each 32-bit lane as a float.
template <int j>
HWY_INLINE VF byte_lane(VB v) {
  const DI di;
  VI i = hn::BitCast(di, v);
  if constexpr (j < 3) i = hn::ShiftLeft<24 - 8 * j>(i);
  return hn::ConvertTo(DF(), hn::ShiftRight<24>(i));
}

template <int j, int T>
HWY_INLINE void multiply_column(VB v, const float* x, int64_t stride, VF (&sum)[T]) {
  const VF w = byte_lane<j>(v);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    sum[t] = hn::MulAdd(w, hn::Set(DF(), x[t * stride + j]), sum[t]);
  }
}

template <int T>
HWY_INLINE void multiply_four(VB v, const float* x, int64_t stride, VF (&sum)[T]) {
  multiply_column<0, T>(v, x, stride, sum);
  multiply_column<1, T>(v, x, stride, sum);
  multiply_column<2, T>(v, x, stride, sum);
  multiply_column<3, T>(v, x, stride, sum);
}

// One part of a strip against T tokens.
template <int T>
HWY_INLINE void part_kernel(const uint8_t* strip, int64_t blocks, int part, const float* x,
                            int64_t stride, VF (&acc)[T]) {
  const DF df;
  const DB d8;
  const VB table = hn::LoadDup128(d8, kCodeTable);
  const VB low = hn::Set(d8, uint8_t(15));
  for (int t = 0; t < T; ++t) acc[t] = hn::Zero(df);
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* tile = strip + b / 4 * kTileBytes;
    const uint8_t* codes = tile + 128 * (b % 4) + 4 * kLanes * part;
    const VF scale = hn::Mul(decode_scales(tile + kTileCodeBytes + 16 * (b % 4) + kLanes * part),
                             hn::Set(df, 128.0f));
    VF sum[T];
    for (int t = 0; t < T; ++t) sum[t] = hn::Zero(df);
    for (int h = 0; h < 2; ++h) {
      const VB c = hn::LoadU(d8, codes + 64 * h);
      const VB high =
          hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<uint16_t, DI>(), c)));
      const float* xb = x + 16 * b + 8 * h;
      multiply_four<T>(hn::TableLookupBytes(table, hn::And(c, low)), xb, stride, sum);
      multiply_four<T>(hn::TableLookupBytes(table, hn::And(high, low)), xb + 4, stride, sum);
    }
    for (int t = 0; t < T; ++t) acc[t] = hn::MulAdd(sum[t], scale, acc[t]);
  }
}

template <int T>
HWY_NOINLINE void strip_tokens(const LinearOutput& o, const FloatRows& x, const uint8_t* strip,
                               int64_t row0, int64_t rows, int64_t n) {
  alignas(64) float results[T * kTileRows];
  for (int part = 0; part < kParts; ++part) {
    VF acc[T];
    part_kernel<T>(strip, x.width / 16, part, x.data + n * x.stride, x.stride, acc);
    for (int t = 0; t < T; ++t) {
      hn::Store(acc[t], DF(), results + t * kTileRows + part * kLanes);
    }
  }
  write_strip(o, n, T, row0, rows, results, kTileRows);
}

void float_strips(const LinearOutput& o, const FloatRows& x, const uint8_t* packed, int64_t rows,
                  int64_t strip_begin, int64_t strip_end, int64_t token_begin, int64_t token_end) {
  constexpr int kMany = HWY_TARGET == HWY_AVX3 ? 8 : 4;
  const int64_t strip_bytes = tiles_across(x.width) * kTileBytes;
  for (int64_t s = strip_begin; s < strip_end; ++s) {
    const uint8_t* strip = packed + s * strip_bytes;
    int64_t n = token_begin;
    for (; n + kMany <= token_end; n += kMany) {
      strip_tokens<kMany>(o, x, strip, s * kTileRows, rows, n);
    }
    for (; n + 2 <= token_end; n += 2) strip_tokens<2>(o, x, strip, s * kTileRows, rows, n);
    for (; n < token_end; ++n) strip_tokens<1>(o, x, strip, s * kTileRows, rows, n);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(float_strips);

void nvfp4_strips(const LinearOutput& o, const FloatRows& x, const LinearWeight& w,
                  int64_t strip_begin, int64_t strip_end, int64_t token_begin, int64_t token_end) {
  HWY_DYNAMIC_DISPATCH(float_strips)
  (o, x, w.packed.as<uint8_t>(), w.out, strip_begin, strip_end, token_begin, token_end);
}

}  // namespace nibble::cpu
#endif
