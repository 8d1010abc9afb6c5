// SPDX-License-Identifier: MIT
// Inputs of a linear layer in the form its kernel reads: plain floats, pairs, or int8 tiles. The
// int8 rule is quant/int8.h's, bit for bit.
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/activations.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

void float_rows(const Tensor& x, float* out, int64_t begin, int64_t end) {
  const int64_t width = x.shape[1];
  with_type(x.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    for (int64_t n = begin; n < end; ++n) convert(out + n * width, row<T>(x, n), width);
  });
}

void pair_rows(const Tensor& x, float* out, int64_t begin, int64_t end) {
#if HWY_TARGET == HWY_AVX3
  const int64_t width = x.shape[1], steps = gemm_steps(GemmElement::bf16_pair, width);
  for (int64_t n = begin; n < end; ++n) {
    load_steps<Pairs>(out + n * steps, row<bf16_t>(x, n), width);
  }
#else
  (void)x, (void)out, (void)begin, (void)end;
#endif
}

constexpr int kVectors = 32 / kLanes;

// Largest magnitude of 32 values; NaN where there is one, because its bits are the largest.
HWY_INLINE float absolute_maximum32(const VF* v) {
  const DI di;
  VI m = hn::Zero(di);
  for (int i = 0; i < kVectors; ++i) m = hn::Max(m, hn::BitCast(di, hn::Abs(v[i])));
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(di, m));
  float amax;
  std::memcpy(&amax, &bits, 4);
  return amax;
}

// 32 values into half `h` of a tile.
HWY_INLINE void quantize32(const float* x, Int8Tile* tile, int h) {
  const DF df;
  const DI di;
  const hn::Rebind<int8_t, DF> d8;
  VF v[kVectors];
  for (int i = 0; i < kVectors; ++i) v[i] = load(x + i * kLanes);
  const float scale = absolute_maximum32(v) / 127.0f;
  // The kernel's powers of two: weights come doubled (1/2), their scales times 2^-8.
  tile->scale[h] = scale * 128.0f;
  if (!(scale > 0.0f && scale <= 3.402823466e38f)) {
    std::memset(tile->q + 32 * h, 0, 32);
    tile->correction[2 * h] = tile->correction[2 * h + 1] = 0;
    return;
  }
  const VF divisor = hn::Set(df, scale);
  const VF limit = hn::Set(df, 127.0f);
  VI sum[2] = {hn::Zero(di), hn::Zero(di)};
  for (int i = 0; i < kVectors; ++i) {
    const VF y = hn::Min(hn::Max(hn::Div(v[i], divisor), hn::Neg(limit)), limit);
    const VI q = hn::NearestInt(y);
    hn::StoreU(hn::DemoteTo(d8, q), d8, tile->q + 32 * h + i * kLanes);
    VI& s = sum[2 * i / kVectors];
    s = hn::Add(s, q);
  }
  for (int b = 0; b < 2; ++b) {
    tile->correction[2 * h + b] = -12 * hn::GetLane(hn::SumOfLanes(di, sum[b]));
  }
}

void int8_rows(const Tensor& x, Int8Tile* out, int64_t group, int64_t begin, int64_t end) {
  const int64_t width = x.shape[1], tiles = (width + kTileCols - 1) / kTileCols;
  with_type(x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (int64_t n = begin; n < end; ++n) {
      const T* in = row<T>(x, n);
      Int8Tile* tile = out + n / group * group * tiles + n % group;
      for (int64_t k = 0; k < tiles; ++k, tile += group) {
        alignas(64) float values[kTileCols] = {};
        convert(values, in + k * kTileCols, HWY_MIN(kTileCols, width - k * kTileCols));
        quantize32(values, tile, 0);
        quantize32(values + 32, tile, 1);
      }
    }
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(float_rows);
HWY_EXPORT(pair_rows);
HWY_EXPORT(int8_rows);

void rows_to_float(const Tensor& x, float* out, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(float_rows)(x, out, begin, end);
}
void rows_to_pairs(const Tensor& x, float* out, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(pair_rows)(x, out, begin, end);
}
void rows_to_int8(const Tensor& x, Int8Tile* out, int64_t group, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(int8_rows)(x, out, group, begin, end);
}

}  // namespace nibble::cpu
#endif
