// SPDX-License-Identifier: MIT
// AdamW of eight elements a lane, for any types and moment formats: two lanes share an NVFP4 block,
// a warp is a moment block of 256. (With 16 elements a lane the unrolled code left the instruction
// cache: five times slower.) The arithmetic is that of optim/moments.h and quant/nvfp4_block.h, so
// the bits are the CPU's.
#pragma once
#include <algorithm>
#include <vector>

#include "backends/cuda/context.h"
#include "backends/cuda/device_functions/quantize_half.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "optim/adamw_element.h"
#include "optim/moments.h"

namespace nibble::cuda {

constexpr int kAdamwThreads = 256, kPerLane = 8, kLanes = int(kMomentBlock) / kPerLane;
static_assert(kLanes == 32);

struct AdamwArgs {
  void *master, *grad;
  MomentView m, v;
  MomentFormat format;
  int64_t begin, end;
  AdamwTerms<float> terms;
  uint64_t seed, stream;
  uint8_t* packed;  // null: there is no NVFP4 copy
  int64_t in, row_offset;
  const float* row_scale;
  ScaleRule rule;
  bool from_quantised, aligned;
  MasterRounding rounding;
  DType type, grad_type;  // of the master and of the gradient
};
inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// adamw_fast.cu: updates what it can of `all` and removes it from the list: bf16 masters and
// gradients, int8 moments, values in the range for which its arithmetic is proven.
void adamw_fast(const Context& c, unsigned* counters, std::vector<AdamwArgs>& all);

namespace {  // each translation unit has its own device code

// Tables of the 8-bit codes; copied to shared memory, as lanes look up different entries, which
// constant memory serialises.
struct Tables {
  DynamicMap dynamic;
  LogMap log;
};
__constant__ Tables kTables;

template <class T, class V>
__device__ __forceinline__ void load8(const T* p, int count, bool aligned, V&& take) {
  if (count == kPerLane && aligned) {
    constexpr int W = std::min(kPerLane, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kPerLane; k += W) {
      const Pack<T, W> raw = *reinterpret_cast<const Pack<T, W>*>(p + k);
#pragma unroll
      for (int i = 0; i < W; ++i) take(k + i, raw.v[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i < count) take(i, p[i]);
    }
  }
}
template <class T, class V>
__device__ __forceinline__ void store8(T* p, int count, bool aligned, V&& give) {
  if (count == kPerLane && aligned) {
    constexpr int W = std::min(kPerLane, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kPerLane; k += W) {
      Pack<T, W> raw;
#pragma unroll
      for (int i = 0; i < W; ++i) raw.v[i] = give(k + i);
      *reinterpret_cast<Pack<T, W>*>(p + k) = raw;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (i < count) p[i] = give(i);
    }
  }
}

__device__ __forceinline__ void random_words(uint64_t seed, uint64_t stream, int64_t element,
                                             uint32_t (&words)[kPerLane]) {
  static_assert(kPerLane == 8);
  const auto four = philox(seed, stream, uint64_t(element) / 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = four[size_t(i)];
    words[i + 4] = exchanged_halves(words[i]);
  }
}

// The largest magnitude of a moment block; NaN when there is one.
__device__ __forceinline__ float block_amax(const float (&x)[kPerLane]) {
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
  for (int o = kLanes / 2; o > 0; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  return __uint_as_float(top);
}

template <Moment kMoment>
__device__ __forceinline__ void decode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, float (&out)[kPerLane]) {
  const float scale = x.scales[element / kMomentBlock];
  load8(x.codes + element, count, aligned, [&](int i, uint8_t code) {
    out[i] = (kMoment == Moment::first ? dynamic_value(t.dynamic, code) : log_value(t.log, code)) *
             scale;
  });
}
template <Moment kMoment>
__device__ __forceinline__ void encode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, bool leader,
                                            const float (&in)[kPerLane],
                                            const uint32_t (&words)[kPerLane]) {
  const float scale = int8_moment_scale(block_amax(in)), inverse = inverse_or_zero(scale);
  if (leader && count > 0) x.scales[element / kMomentBlock] = scale;
  store8(x.codes + element, count, aligned, [&](int i) {
    const float r = in[i] * inverse;
    return kMoment == Moment::first ? dynamic_code(t.dynamic, r)
                                    : log_code(t.log, r, words[i] >> 16);
  });
}

// The other formats; rarely chosen, so their kernel decides at run time.
template <Moment kMoment>
__device__ __forceinline__ void decode_other(MomentFormat format, const MomentView& x,
                                             int64_t element, int count, float (&out)[kPerLane]) {
  const float scale = x.scales ? x.scales[element / kMomentBlock] : 1.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i >= count) continue;
    const int64_t e = element + i;
    if (format == MomentFormat::f32) {
      out[i] = reinterpret_cast<const float*>(x.codes)[e];
    } else if (format == MomentFormat::bf16) {
      out[i] = to_f32(reinterpret_cast<const bf16*>(x.codes)[e]);
    } else if (format == MomentFormat::int8_linear) {
      out[i] = float(int8_t(x.codes[e])) * scale;
    } else {
      const uint8_t pair = x.codes[e / 2];
      const float s = e4m3_value(x.small_scales[e / 16]);
      const float value = e2m1_value(uint8_t(i % 2 ? pair >> 4 : pair & 15)) * s * scale;
      out[i] = kMoment == Moment::first ? value : value * value;
    }
  }
}

template <Moment kMoment>
__device__ __forceinline__ void encode_nvfp4(const MomentView& x, int64_t element, int count,
                                             bool leader, const float (&in)[kPerLane],
                                             const uint32_t (&words)[kPerLane]) {
  constexpr bool kFirst = kMoment == Moment::first;
  float y[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) y[i] = kFirst ? in[i] : i < count ? sqrtf(in[i]) : 0.0f;
  const float scale = nvfp4_moment_scale(block_amax(y), kFirst ? FLT_MIN : kRootScaleFloor);
  uint32_t top = __float_as_uint(moment_amax(y, kPerLane));
  top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));  // two lanes share a small scale
  if (count == 0) return;
  if (leader) x.scales[element / kMomentBlock] = scale;
  const float amax = __uint_as_float(top);
  const uint8_t small = nvfp4_small_scale(amax, scale);
  if (element % 16 == 0) x.small_scales[element / 16] = small;
  const float s = e4m3_value(small) * scale;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i >= count) continue;
    const float r = amax == 0 ? 0.0f : y[i] / s;
    const uint8_t code = kFirst ? e2m1_encode(r) : e2m1_stochastic(r, words[i] >> 16);
    uint8_t& pair = x.codes[(element + i) / 2];
    pair = uint8_t(i % 2 ? (pair & 15) | code << 4 : (pair & 0xf0) | code);
  }
}

template <Moment kMoment>
__device__ __forceinline__ void encode_other(MomentFormat format, const MomentView& x,
                                             int64_t element, int count, bool leader,
                                             const float (&in)[kPerLane],
                                             const uint32_t (&words)[kPerLane]) {
  constexpr bool kFirst = kMoment == Moment::first;
  if (format == MomentFormat::nvfp4) {
    encode_nvfp4<kMoment>(x, element, count, leader, in, words);
    return;
  }
  const float scale = block_amax(in) / 127;
  if (format == MomentFormat::int8_linear && leader && count > 0) {
    x.scales[element / kMomentBlock] = scale;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i >= count) continue;
    if (format == MomentFormat::f32) {
      reinterpret_cast<float*>(x.codes)[element + i] = in[i];
    } else if (format == MomentFormat::bf16) {
      reinterpret_cast<bf16_t*>(x.codes)[element + i] =
          kFirst ? stochastic_bf16(in[i], words[i]) : stochastic_bf16_v(in[i], words[i] >> 16);
    } else {
      x.codes[element + i] = linear_code(in[i], scale);
    }
  }
}

__device__ __noinline__ uint8_t quantize_by_rule(ScaleRule rule, const float* w, float g,
                                                 uint8_t* codes) {
  switch (rule) {
    case ScaleRule::absmax: return nvfp4_block::quantize<ScaleRule::absmax>(w, g, codes);
    case ScaleRule::search: return nvfp4_block::quantize<ScaleRule::search>(w, g, codes);
    default: return nvfp4_block::quantize<ScaleRule::torchao>(w, g, codes);
  }
}

// The place of an element's block in the packed weight, and its row's scale.
__device__ __forceinline__ BlockPlace place_of(const AdamwArgs& a, int64_t element, float* g) {
  const int64_t row = a.row_offset + element / a.in;
  *g = a.row_scale ? a.row_scale[row] : 1.0f;
  return block_place(a.in, row, element % a.in / kNvfp4Block);
}

// Rarely chosen scale rules: the lane with the first half quantises the block alone.
__device__ __noinline__ void requantize_by_rule(const AdamwArgs& a, int64_t element, bool changed,
                                                const float* own) {
  float w[16];
  for (int i = 0; i < kPerLane; ++i) {
    w[i] = own[i];
    w[i + kPerLane] = __shfl_xor_sync(0xffffffffu, own[i], 1);
  }
  if (!changed || element % 16 != 0) return;
  float g;
  const BlockPlace at = place_of(a, element, &g);
  uint8_t bytes[8];
  const uint8_t scale = quantize_by_rule(a.rule, w, g, bytes);
  uint64_t codes = 0;
  for (int i = 0; i < 8; ++i) codes |= uint64_t(bytes[i]) << (8 * i);
  write_block(a.packed, at, codes, scale);
}

// All lanes take part; `changed` is that of the block.
template <bool kShortMantissa>
__device__ __forceinline__ void requantize(const AdamwArgs& a, int64_t element, bool changed,
                                           const float (&w)[kPerLane]) {
  float g = 1;
  BlockPlace at = {};
  if (changed) at = place_of(a, element, &g);
  const QuantisedHalf q = four_over_six_half<kShortMantissa>(w, g);
  if (!changed) return;
  const int half = int(element / kPerLane % 2);
  *reinterpret_cast<uint32_t*>(a.packed + at.codes + 4 * half) = q.word;
  if (half == 0) a.packed[at.scale] = q.scale;
}

// The eight elements of a lane, any types and formats.
template <class M, class G, bool kInt8>
__device__ __forceinline__ void generic_step(const AdamwArgs& a, const Tables& tables,
                                             int64_t element) {
  // Lanes past the end stay: the block's maximum is found together.
  const int count = int(max(int64_t(0), min(int64_t(kPerLane), a.end - element)));
  const bool leader = threadIdx.x % kLanes == 0;
  M* master = static_cast<M*>(a.master) + element;
  const G* grad = static_cast<const G*>(a.grad) + element;

  float m[kPerLane] = {}, v[kPerLane] = {}, w[kPerLane] = {}, g[kPerLane] = {};
  if (count > 0) {
    load8(grad, count, a.aligned, [&](int i, G x) { g[i] = to_f32(x); });
    load8(master, count, a.aligned, [&](int i, M x) { w[i] = to_f32(x); });
    if constexpr (kInt8) {
      decode_int8<Moment::first>(tables, a.m, element, count, a.aligned, m);
      decode_int8<Moment::second>(tables, a.v, element, count, a.aligned, v);
    } else {
      decode_other<Moment::first>(a.format, a.m, element, count, m);
      decode_other<Moment::second>(a.format, a.v, element, count, v);
    }
  }
  uint32_t words[kPerLane];
  if (kInt8 || sizeof(M) == 2) random_words(a.seed, a.stream, element, words);
  bool changed = false;
  float from[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) from[i] = w[i];
  if (a.from_quantised && count == kPerLane) {
    float scale;
    uint8_t byte;
    const uint64_t codes =
        read_block(a.packed, place_of(a, element, &scale), &byte) >> (element % 16 * 4);
    const float s = e4m3_value(byte) * scale;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) from[i] = e2m1_value(uint8_t(codes >> (4 * i) & 15)) * s;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i >= count) continue;
    float next = from[i];
    adamw_element(a.terms, g[i], m[i], v[i], next);
    if constexpr (sizeof(M) == 2) next = to_float(round_master(a.rounding, next, words[i]));
    changed |= __float_as_uint(next) != __float_as_uint(w[i]);
    w[i] = next;
  }
  if (count > 0) store8(master, count, a.aligned, [&](int i) { return from_f32<M>(w[i]); });
  if constexpr (kInt8) {
    encode_int8<Moment::first>(tables, a.m, element, count, a.aligned, leader, m, words);
    encode_int8<Moment::second>(tables, a.v, element, count, a.aligned, leader, v, words);
  } else {
    random_words(a.seed, moment_stream(a.format, a.stream), element, words);
    encode_other<Moment::first>(a.format, a.m, element, count, leader, m, words);
    encode_other<Moment::second>(a.format, a.v, element, count, leader, v, words);
  }
  if (!a.packed) return;
  changed |= __shfl_xor_sync(0xffffffffu, int(changed), 1) != 0;
  if (__ballot_sync(0xffffffffu, changed) == 0) return;
  // The whole warp: halves of a block meet in shuffles. Products of a row scale have more bits.
  if (a.rule != ScaleRule::four_over_six) {
    requantize_by_rule(a, element, changed, w);
  } else if (sizeof(M) == 2 && !a.row_scale) {
    requantize<true>(a, element, changed, w);
  } else {
    requantize<false>(a, element, changed, w);
  }
}
}  // namespace
}  // namespace nibble::cuda
