// SPDX-License-Identifier: MIT
// AdamW in one pass: reads gradient, master and moments, writes master, moments and the NVFP4 copy.
// A lane owns 8 elements, two lanes an NVFP4 block, a warp a moment block of 256. (With 16 elements
// a lane the code, all unrolled, left the instruction cache: five times slower.) The arithmetic is
// that of quant/moments.h and quant/nvfp4_block.h, so the bits are the CPU's.
#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/quantize_half.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"
#include "quant/moments.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256, kOwn = 8, kLanes = int(kMomentBlock) / kOwn;
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
};

// Philox taken apart: the keys come from the host.
constexpr int kPhiloxRounds = 10;

// One round; `product` multiplies two words to 64 bits.
template <class C, class Product>
constexpr void philox_round(C& c, uint32_t k0, uint32_t k1, Product&& product) {
  const uint64_t p0 = product(0xD2511F53u, c[0]), p1 = product(0xCD9E8D57u, c[2]);
  const uint32_t c1 = c[1], c3 = c[3];
  c[0] = uint32_t(p1 >> 32) ^ c1 ^ k0, c[1] = uint32_t(p1);
  c[2] = uint32_t(p0 >> 32) ^ c3 ^ k1, c[3] = uint32_t(p0);
}

// The keys of the rounds, two each.
constexpr std::array<uint32_t, 2 * kPhiloxRounds> philox_keys(uint64_t seed) {
  std::array<uint32_t, 2 * kPhiloxRounds> keys{};
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (size_t round = 0; round < size_t(kPhiloxRounds); ++round) {
    keys[2 * round] = k0, keys[2 * round + 1] = k1;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return keys;
}
constexpr std::array<uint32_t, 4> philox_by_rounds(uint64_t seed, uint64_t stream, uint64_t index) {
  std::array<uint32_t, 4> c{uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
                            uint32_t(stream >> 32)};
  const auto keys = philox_keys(seed);
  for (size_t i = 0; i < keys.size(); i += 2) {
    philox_round(c, keys[i], keys[i + 1], [](uint32_t a, uint32_t b) { return uint64_t(a) * b; });
  }
  return c;
}
static_assert(philox_by_rounds(0x123456789abcdef1, 0xfedcba9876543217, 0x55aa77cc33119955) ==
              philox(0x123456789abcdef1, 0xfedcba9876543217, 0x55aa77cc33119955));

// What the kernel for bf16 masters and gradients and int8 moments has besides.
struct ShortTerms {
  float bias1, bias2;          // inverse as in AdamwTerms, times 2^30 and root_scale^-2
  float root_scale;            // a power of two
  uint32_t tiny;               // a pair of bf16: gradients below, but for 0, are not for it
  uint32_t row_blocks, units;  // NVFP4 blocks of a row, and units
  uint32_t row_offset;         // as in AdamwArgs
  uint32_t magic, shift;       // block / row_blocks = block * magic >> (32 + shift)
  uint32_t keys[2 * kPhiloxRounds];
};

// The tables of the 8-bit codes; lanes look up different rows, which constant memory serialises.
struct Tables {
  DynamicMap dynamic;
  LogMap log;
};
__constant__ Tables kTables;

template <class T, class V>
__device__ __forceinline__ void load8(const T* p, int count, bool aligned, V&& take) {
  if (count == kOwn && aligned) {
    constexpr int W = std::min(kOwn, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kOwn; k += W) {
      const Pack<T, W> raw = *reinterpret_cast<const Pack<T, W>*>(p + k);
#pragma unroll
      for (int i = 0; i < W; ++i) take(k + i, raw.v[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i < count) take(i, p[i]);
    }
  }
}
template <class T, class V>
__device__ __forceinline__ void store8(T* p, int count, bool aligned, V&& give) {
  if (count == kOwn && aligned) {
    constexpr int W = std::min(kOwn, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kOwn; k += W) {
      Pack<T, W> raw;
#pragma unroll
      for (int i = 0; i < W; ++i) raw.v[i] = give(k + i);
      *reinterpret_cast<Pack<T, W>*>(p + k) = raw;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i < count) p[i] = give(i);
    }
  }
}

__device__ __forceinline__ void random_words(uint64_t seed, uint64_t stream, int64_t element,
                                             uint32_t (&words)[kOwn]) {
#pragma unroll
  for (int k = 0; k < kOwn; k += 4) {
    const auto four = philox(seed, stream, uint64_t(element + k) / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[k + i] = four[size_t(i)];
  }
}

// The largest magnitude of a moment block; NaN when there is one.
__device__ __forceinline__ float block_amax(const float (&x)[kOwn]) {
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
  for (int o = kLanes / 2; o > 0; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  return __uint_as_float(top);
}

template <Moment kMoment>
__device__ __forceinline__ void decode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, float (&out)[kOwn]) {
  const float scale = x.scales[element / kMomentBlock];
  load8(x.codes + element, count, aligned, [&](int i, uint8_t code) {
    out[i] = (kMoment == Moment::first ? dynamic_value(t.dynamic, code) : log_value(t.log, code)) *
             scale;
  });
}
template <Moment kMoment>
__device__ __forceinline__ void encode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, bool leader,
                                            const float (&in)[kOwn],
                                            const uint32_t (&words)[kOwn]) {
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
                                             int64_t element, int count, float (&out)[kOwn]) {
  const float scale = x.scales ? x.scales[element / kMomentBlock] : 1.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
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
                                             bool leader, const float (&in)[kOwn],
                                             const uint32_t (&words)[kOwn]) {
  constexpr bool kFirst = kMoment == Moment::first;
  float y[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) y[i] = kFirst ? in[i] : i < count ? sqrtf(in[i]) : 0.0f;
  const float scale = nvfp4_moment_scale(block_amax(y), kFirst ? FLT_MIN : kRootScaleFloor);
  uint32_t top = __float_as_uint(moment_amax(y, kOwn));
  top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));  // two lanes share a small scale
  if (count == 0) return;
  if (leader) x.scales[element / kMomentBlock] = scale;
  const float amax = __uint_as_float(top);
  const uint8_t small = nvfp4_small_scale(amax, scale);
  if (element % 16 == 0) x.small_scales[element / 16] = small;
  const float s = e4m3_value(small) * scale;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
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
                                             const float (&in)[kOwn],
                                             const uint32_t (&words)[kOwn]) {
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
  for (int i = 0; i < kOwn; ++i) {
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

// Rules that are rarely chosen: the lane with the first half does the block.
__device__ __noinline__ void requantize_by_rule(const AdamwArgs& a, int64_t element, bool changed,
                                                const float* own) {
  float w[16];
  for (int i = 0; i < kOwn; ++i) {
    w[i] = own[i];
    w[i + kOwn] = __shfl_xor_sync(0xffffffffu, own[i], 1);
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
template <bool kShort>
__device__ __forceinline__ void requantize(const AdamwArgs& a, int64_t element, bool changed,
                                           const float (&w)[kOwn]) {
  float g = 1;
  BlockPlace at = {};
  if (changed) at = place_of(a, element, &g);
  const QuantisedHalf q = four_over_six_half<kShort>(w, g);
  if (!changed) return;
  const int half = int(element / kOwn % 2);
  *reinterpret_cast<uint32_t*>(a.packed + at.codes + 4 * half) = q.word;
  if (half == 0) a.packed[at.scale] = q.scale;
}

// Weights of bf16 too large for four_over_six_pairs.
__device__ __noinline__ void requantize_general(const AdamwArgs& a, int64_t element, bool changed,
                                                uint4 four) {
  const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
  float w[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) w[i] = i % 2 ? high_float(pairs[i / 2]) : low_float(pairs[i / 2]);
  requantize<true>(a, element, changed, w);
}

// The eight elements of a lane, any types and formats.
template <class M, class G, bool kInt8>
__device__ __forceinline__ void step_any(const AdamwArgs& a, const Tables& tables,
                                         int64_t element) {
  // Lanes past the end stay: the block's maximum is found together.
  const int count = int(max(int64_t(0), min(int64_t(kOwn), a.end - element)));
  const bool leader = threadIdx.x % kLanes == 0;
  M* master = static_cast<M*>(a.master) + element;
  const G* grad = static_cast<const G*>(a.grad) + element;

  float m[kOwn] = {}, v[kOwn] = {}, w[kOwn] = {}, g[kOwn] = {};
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
  uint32_t words[kOwn];
  if (kInt8 || sizeof(M) == 2) random_words(a.seed, a.stream, element, words);
  bool changed = false;
  float from[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) from[i] = w[i];
  if (a.from_quantised && count == kOwn) {
    float scale;
    uint8_t byte;
    const uint64_t codes =
        read_block(a.packed, place_of(a, element, &scale), &byte) >> (element % 16 * 4);
    const float s = e4m3_value(byte) * scale;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) from[i] = e2m1_value(uint8_t(codes >> (4 * i) & 15)) * s;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count) continue;
    float next = from[i];
    adamw_element(a.terms, g[i], m[i], v[i], next);
    if constexpr (sizeof(M) == 2) next = to_float(stochastic_bf16(next, words[i]));
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

// Writes weights, so the next kernel may not start early.
template <class M, class G, bool kInt8>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  __shared__ Tables tables;
  if (kInt8 && threadIdx.x < sizeof(Tables) / 4) {
    reinterpret_cast<uint32_t*>(&tables)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&kTables)[threadIdx.x];
  }
  __syncthreads();
  wait_for_previous();
  step_any<M, G, kInt8>(a, tables, a.begin + (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kOwn);
}

// --- bf16 master and gradient, int8 moments ---
// The same bits with a third of the instructions. A warp whose values are beyond what the short
// ways below were proved for (huge or tiny ones, NaN, the end of a parameter) takes the general
// one.

struct alignas(16) ShortTables {
  float m[256], v[256];  // values of the codes
  float4 row[8];         // DynamicMap: per_step, origin, last, begin
  float4 eighth[8];      // LogMap: root[j + 1], root[j], per_step[j], per_step[j + 1]
  float4 integer;        // 2^23: its low 23 bits count

  constexpr ShortTables() : m(), v(), row(), eighth(), integer{0x1p23f, 0, 0, 0} {
    for (int i = 0; i < 256; ++i) {
      m[i] = dynamic_value(kDynamicMap, uint8_t(i));
      v[i] = log_value(kLogMap, uint8_t(i));
    }
    for (int i = 0; i < 8; ++i) {
      row[i] = {kDynamicMap.per_step[i], kDynamicMap.origin[i], kDynamicMap.last[i],
                kDynamicMap.begin[i]};
      eighth[i] = {kLogMap.root[i + 1], kLogMap.root[i], kLogMap.per_step[i],
                   kLogMap.per_step[i < 7 ? i + 1 : 7]};
    }
  }
};
__device__ const ShortTables kShortTables;  // not constant memory: lanes read different words

constexpr float kLargestFirst = 0x1p20f, kLargestSecond = 0x1p10f, kLargestMaster = 0x1p100f;
constexpr float kSmallestFirstScale = 0x1p-58f;

__device__ __noinline__ void step_general(const AdamwArgs& a, int64_t element) {
  step_any<bf16, bf16, true>(a, kTables, element);
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// The instructions of sqrtf(x) for x of at least 2^-101, without the test.
__device__ __forceinline__ float short_sqrt(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float s = x * r;
  return fmaf(fmaf(-s, s, x), r * 0.5f, s);
}
// Those of a / b where neither they nor the quotient come near the ends of the range.
__device__ __forceinline__ float short_quotient(float a, float b) {
  float r = approximate_inverse(b);
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  const float q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
}
// 1 / x likewise, and 0 for 0.
__device__ __forceinline__ float short_inverse(float x) {
  const float r = approximate_inverse(x);
  return x == 0 ? 0.0f : fmaf(r, fmaf(-x, r, 1.0f), r);
}
// A byte, 0 the lowest, of each of four words.
template <int kByte>
__device__ __forceinline__ uint32_t four_bytes(const uint32_t* x) {
  constexpr uint32_t kTwo = uint32_t(kByte) | uint32_t(4 + kByte) << 4;
  return __byte_perm(__byte_perm(x[0], x[1], kTwo), __byte_perm(x[2], x[3], kTwo), 0x5410);
}
__device__ __forceinline__ uint32_t byte_at(const uint2& x, int i) {
  return (i < 4 ? x.x : x.y) >> (8 * (i % 4)) & 0xffu;
}

// random_words with the round keys at hand.
__device__ __forceinline__ void random_words(const ShortTerms& s, uint64_t stream, int64_t element,
                                             uint32_t (&words)[kOwn]) {
#pragma unroll
  for (int k = 0; k < kOwn; k += 4) {
    const uint64_t index = uint64_t(element + k) / 4;
    uint32_t c[4] = {uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
                     uint32_t(stream >> 32)};
#pragma unroll
    for (int i = 0; i < kPhiloxRounds; ++i) {
      philox_round(c, s.keys[2 * i], s.keys[2 * i + 1], [](uint32_t a, uint32_t b) {
        uint64_t product;
        asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
        return product;
      });
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) words[k + i] = c[i];
  }
}

// dynamic_code without the sign, of |r| <= 1; in byte 0. rows: the address in shared memory of
// ShortTables::row, 32 rows before.
__device__ __forceinline__ uint32_t short_dynamic_code(uint32_t rows, float r) {
  const float magnitude = fmaxf(fabsf(r), 0x1p-22f);
  // The row, or the one below. By addresses: the compiler would compute each twice.
  uint32_t at = rows + __umulhi(__float_as_uint(magnitude), 160u) * 16;
  float begin;
  asm("ld.shared.f32 %0, [%1 + 12];" : "=f"(begin) : "r"(at));
  if (magnitude >= begin) at += 16;
  float4 line;
  asm("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(line.x), "=f"(line.y), "=f"(line.z), "=f"(line.w)
      : "r"(at));
  const float code = fminf(magnitude * line.x + line.y, line.z);
  return __float_as_uint(code + 0x1p23f);
}
// log_code of 0 <= r <= 1; in byte 3. Below the smallest value a code is 255.
__device__ __forceinline__ uint32_t short_log_code(const ShortTables& t, float r, uint32_t word,
                                                   uint32_t integer) {
  const uint32_t a = __float_as_uint(fmaxf(r, 1.0905077326652577f * 0x1p-32f));
  const float u = __uint_as_float((a & 0x7fffffu) | 0x3f800000u);
  const float4 e =
      *reinterpret_cast<const float4*>(reinterpret_cast<const char*>(t.eighth) + (a >> 16 & 0x70u));
  const bool next = u >= e.x;
  const float part = (u - (next ? e.x : e.y)) * (next ? e.w : e.z);
  const float draw = __uint_as_float(__byte_perm(word, integer, 0x7632)) - 8388607.5f;
  uint32_t code = (1016u << 24) + 0xffffffu - 16u * a;  // 1016 - (a >> 20), then fractions
  if (next) code -= 1u << 24;
  if (draw < part) code -= 1u << 24;
  return code;
}

__global__ void __launch_bounds__(kThreads, 4)
    adamw_short_kernel(const __grid_constant__ AdamwArgs a, const __grid_constant__ ShortTerms s) {
  __shared__ ShortTables t;
  static_assert(sizeof(ShortTables) / 16 <= kThreads);
  if (threadIdx.x < sizeof(ShortTables) / 16) {
    reinterpret_cast<uint4*>(&t)[threadIdx.x] =
        reinterpret_cast<const uint4*>(&kShortTables)[threadIdx.x];
  }
  wait_for_previous();
  const int64_t element = a.begin + (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kOwn;
  const int64_t warp_begin = element - int64_t(threadIdx.x % kLanes) * kOwn;
  const bool whole = warp_begin + kMomentBlock <= a.end;
  const uint64_t moment_block = uint64_t(element) / kMomentBlock;
  uint4 g4, w4;
  uint2 m2, v2;
  float scale_m, scale_v;
  if (whole) {
    g4 = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(a.grad) + element);
    w4 = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(a.master) + element);
    m2 = *reinterpret_cast<const uint2*>(a.m.codes + element);
    v2 = *reinterpret_cast<const uint2*>(a.v.codes + element);
    scale_m = a.m.scales[moment_block];
    scale_v = a.v.scales[moment_block];
  }
  __syncthreads();
  if (!whole) {
    if (warp_begin < a.end) step_general(a, element);
    return;
  }
  const uint32_t g[4] = {g4.x, g4.y, g4.z, g4.w}, w[4] = {w4.x, w4.y, w4.z, w4.w};

  float m[kOwn], v[kOwn], top_m = 0, top_v = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    // The order of adamw_element.
    const float gi = (i % 2 ? high_float(g[i / 2]) : low_float(g[i / 2])) * a.terms.grad_scale;
    m[i] = a.terms.beta1 * (t.m[byte_at(m2, i)] * scale_m) + a.terms.rest1 * gi;
    v[i] = a.terms.beta2 * (t.v[byte_at(v2, i)] * scale_v) + a.terms.rest2 * (gi * gi);
    top_m = max_or_nan(fabsf(m[i]), top_m);
    top_v = max_or_nan(fabsf(v[i]), top_v);
  }
  const float amax_m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_m)));
  const float amax_v = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_v)));

  // Is everything in range? A NaN or infinity in the gradient shows in m. Gradients and scales
  // that are 0 or not tiny make m 0 or above 2^-103: sums of multiples of that.
  const __nv_bfloat162 smallest = __hmin2(__hmin2(__habs2(pair_of(g[0])), __habs2(pair_of(g[1]))),
                                          __hmin2(__habs2(pair_of(g[2])), __habs2(pair_of(g[3]))));
  bool fits = amax_m < kLargestFirst && amax_v < kLargestSecond && scale_v >= 0 &&
              (scale_m >= kSmallestFirstScale || scale_m == 0);
  if ((w[0] | w[1] | w[2] | w[3]) & 0x40004000u) {  // one is 2 or more
    const __nv_bfloat162 largest =
        __hmax2_nan(__hmax2_nan(__habs2(pair_of(w[0])), __habs2(pair_of(w[1]))),
                    __hmax2_nan(__habs2(pair_of(w[2])), __habs2(pair_of(w[3]))));
    fits &= low_float(bits_of(largest)) < kLargestMaster &&
            high_float(bits_of(largest)) < kLargestMaster;
  }
  if (low_float(bits_of(smallest)) < low_float(s.tiny) ||
      high_float(bits_of(smallest)) < high_float(s.tiny)) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {  // zeros are well
      const uint32_t pair = i == 0 ? g[0] : i == 1 ? g[1] : i == 2 ? g[2] : g[3];
      const float low = fabsf(low_float(pair)), high = fabsf(high_float(pair));
      fits &= low == 0 || low >= low_float(s.tiny);
      fits &= high == 0 || high >= high_float(s.tiny);
    }
  }
  if (!__all_sync(~0u, fits)) {
    step_general(a, element);
    return;
  }

  uint32_t words[kOwn], code[kOwn];
  random_words(s, a.stream, element, words);
  uint32_t next[4], different = 0;
#pragma unroll
  for (int i = 0; i < kOwn; i += 2) {
    uint32_t u[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int j = i + k;
      float x = k ? high_float(w[i / 2]) : low_float(w[i / 2]);
      // Powers of two keep sqrt and quotient in range and leave by the fused additions. Where the
      // root is below half of eps' last bit, its size does not matter.
      const float root = short_sqrt(fmaxf(v[j] * s.bias2, 0x1p-60f));
      const float quotient = short_quotient(m[j] * s.bias1, fmaf(root, s.root_scale, a.terms.eps));
      const float step = a.terms.lr * fmaf(quotient, 0x1p-30f, a.terms.decay * x);
      if (step != 0) x = x - step;
      u[k] = __float_as_uint(x) + (words[j] & 0xffffu);
    }
    next[i / 2] = __byte_perm(u[0], u[1], 0x7632);
    different |= next[i / 2] ^ w[i / 2];
  }
  // The intrinsic: the compiler would make four stores of it.
  __stwb(reinterpret_cast<uint4*>(static_cast<bf16*>(a.master) + element),
         make_uint4(next[0], next[1], next[2], next[3]));

  const float new_scale_m = int8_moment_scale(amax_m), new_scale_v = int8_moment_scale(amax_v);
  const float inverse_m = short_inverse(new_scale_m), inverse_v = short_inverse(new_scale_v);
  if (threadIdx.x % kLanes == 0) {
    a.m.scales[moment_block] = new_scale_m;
    a.v.scales[moment_block] = new_scale_v;
  }
  const uint32_t rows = uint32_t(__cvta_generic_to_shared(t.row)) - 32 * sizeof(float4);
  uint32_t top[kOwn];  // the signs
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float r = m[i] * inverse_m;
    code[i] = short_dynamic_code(rows, r);
    top[i] = __float_as_uint(r);
  }
  *reinterpret_cast<uint2*>(a.m.codes + element) =
      make_uint2(four_bytes<0>(code) | (four_bytes<3>(top) & 0x80808080u),
                 four_bytes<0>(code + 4) | (four_bytes<3>(top + 4) & 0x80808080u));
  const uint32_t integer = __float_as_uint(t.integer.x);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) code[i] = short_log_code(t, v[i] * inverse_v, words[i], integer);
  *reinterpret_cast<uint2*>(a.v.codes + element) =
      make_uint2(four_bytes<3>(code), four_bytes<3>(code + 4));

  if (!a.packed) return;
  const bool changed = (different | __shfl_xor_sync(~0u, different, 1)) != 0;
  if (!__any_sync(~0u, changed)) return;
  const float amax = pair_block_amax(next);
  if (__any_sync(~0u, amax >= kPairLimit)) {
    requantize_general(a, element, changed, make_uint4(next[0], next[1], next[2], next[3]));
    return;
  }
  const QuantisedHalf q = four_over_six_pairs(next, amax);
  if (!changed) return;
  const uint32_t block = uint32_t(uint64_t(element) / kNvfp4Block);
  const uint32_t whole_rows = __umulhi(block, s.magic) >> s.shift;
  const uint32_t column = block - whole_rows * s.row_blocks, row = s.row_offset + whole_rows;
  // Within its unit a block lies as in a weight of one unit.
  constexpr uint32_t kRows = uint32_t(kUnitRows), kBlocks = uint32_t(kUnitCols / kNvfp4Block);
  const BlockPlace at = block_place(kUnitCols, row % kRows, column % kBlocks);
  uint8_t* unit =
      a.packed + uint64_t(row / kRows * s.units + column / kBlocks) * uint32_t(kUnitBytes);
  const uint32_t half = threadIdx.x % 2;
  *reinterpret_cast<uint32_t*>(unit + (uint32_t(at.codes) + 4 * half)) = q.word;
  if (half == 0) unit[uint32_t(at.scale)] = q.scale;
}

// Whether the short kernel's proofs hold for these terms, and what it needs.
bool short_terms(const AdamwArgs& a, ShortTerms* s) {
  const AdamwTerms<float>& t = a.terms;
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };
  if (!within(t.eps, 0x1p-36f, 1) || !within(t.beta1, 0.5f, 1) || !within(t.rest1, 0x1p-10f, 1) ||
      !within(t.beta2, 0, 1) || !within(t.rest2, 0, 1) || !within(t.inverse_bias1, 1, 0x1p20f) ||
      !within(t.inverse_bias2, 1, 0x1p20f) || !within(t.lr, 0, 0x1p10f) ||
      !within(t.decay, 0, 0x1p10f) || !within(t.grad_scale, 0x1p-40f, 0x1p40f)) {
    return false;
  }
  // sqrt(2^-60) * root_scale is 2^-25 of the power of two below eps: less than half its last bit.
  const int root = std::ilogb(t.eps) + 5;
  s->root_scale = std::ldexp(1.0f, root);
  s->bias1 = t.inverse_bias1 * 0x1p30f;
  s->bias2 = std::ldexp(t.inverse_bias2, -2 * root);
  const uint32_t tiny =
      __builtin_bit_cast(uint32_t, std::ldexp(1.0f, -70 - std::ilogb(t.grad_scale))) >> 16;
  s->tiny = tiny | tiny << 16;
  std::copy_n(philox_keys(a.seed).begin(), 2 * kPhiloxRounds, s->keys);
  s->row_blocks = s->units = s->row_offset = s->magic = s->shift = 0;
  if (!a.packed) return true;
  const int64_t blocks = a.in / kNvfp4Block;
  if (a.rule != ScaleRule::four_over_six || a.row_scale || a.in % kNvfp4Block != 0 || blocks < 2 ||
      blocks >= 1 << 20 || a.row_offset >= 1 << 30 || a.end / kNvfp4Block >= int64_t(1) << 31) {
    return false;
  }
  s->row_blocks = uint32_t(blocks), s->units = uint32_t(units_across(a.in));
  s->row_offset = uint32_t(a.row_offset);
  int bits = 1;  // 2^(bits - 1) < blocks <= 2^bits
  while (int64_t(1) << bits < blocks) ++bits;
  s->magic = uint32_t((uint64_t(1) << (31 + bits)) / uint64_t(blocks) + 1);
  s->shift = uint32_t(bits - 1);
  return true;
}

// --- Sum of squares ---
// Blocks of 2^16 elements, then the blocks in order: the size alone decides the order.
constexpr int64_t kSumBlock = 1 << 16;

__device__ __forceinline__ double block_sum(double v) {
  __shared__ double part[kThreads];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (int(threadIdx.x) < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  return part[0];
}

template <class T>
__global__ void squares_kernel(double* partial, const T* x, int64_t n, bool aligned) {
  constexpr int W = 8;
  enter();
  const int64_t begin = blockIdx.x * kSumBlock, end = min(n, begin + kSumBlock);
  double sum = 0;
  for (int64_t i = begin + int64_t(threadIdx.x) * W; i < end; i += kThreads * W) {
    float v[W];
    if (aligned && i + W <= end) {
      load_f32<W>(x + i, v);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = i + k < end ? to_f32(x[i + k]) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < W; ++k) sum = fma(double(v[k]), double(v[k]), sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_partials_kernel(double* out, const double* partial, int64_t n) {
  enter();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class F>
void with_state_type(DType t, F&& f) {
  if (t == DType::bf16) {
    f(bf16{});
  } else {
    f(float{});
  }
}

}  // namespace

void sum_squares(const Context& c, Tensor out, Tensor x) {
  const int64_t n = x.numel(), blocks = (n + kSumBlock - 1) / kSumBlock;
  auto* partial = blocks == 1 ? ptr<double>(out) : reinterpret_cast<double*>(c.scratch());
  if (size_t(blocks) * sizeof(double) > Context::kScratchBytes) {
    throw_internal("sum_squares: {} elements", n);
  }
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(unsigned(blocks)), dim3(kThreads)}, squares_kernel<T>, partial, ptr<const T>(x),
           n, aligned16(x.data));
  });
  if (blocks == 1) return;
  launch(c, {dim3(1), dim3(kThreads)}, sum_partials_kernel, ptr<double>(out), partial, blocks);
}

void adamw_step(const Context& c, Tensor master, Tensor grad, Tensor m, Tensor v,
                MomentFormat format, int64_t begin, int64_t count, const AdamwStep& step,
                const Requantize& rq) {
  const int64_t n = master.numel();
  AdamwArgs a{
      master.data,
      grad.data,
      MomentView(format, m.data, n),
      MomentView(format, v.data, n),
      format,
      begin,
      begin + count,
      AdamwTerms<float>(step),
      step.seed,
      step.stream,
      nullptr,
      1,
      0,
      nullptr,
      rq.rule,
      step.from == UpdateFrom::quantised,
      aligned16(master.data) && aligned16(grad.data) && aligned16(m.data) && aligned16(v.data)};
  if (rq.weight) {
    a.packed = rq.weight->packed.as<uint8_t>();
    a.in = rq.weight->in, a.row_offset = rq.row_offset;
    a.row_scale = rq.weight->row_scale ? ptr<const float>(rq.weight->row_scale) : nullptr;
  }
  const Grid grid{dim3(blocks_for(count, kThreads * kOwn)), dim3(kThreads)};
  ShortTerms terms;
  if (format == MomentFormat::int8 && master.dtype == DType::bf16 && grad.dtype == DType::bf16 &&
      a.aligned && !a.from_quantised && short_terms(a, &terms)) {
    launch(c, grid, adamw_short_kernel, a, terms);
    return;
  }
  with_state_type(master.dtype, [&](auto mt) {
    with_state_type(grad.dtype, [&](auto gt) {
      using M = decltype(mt);
      using G = decltype(gt);
      launch(c, grid,
             format == MomentFormat::int8 ? adamw_kernel<M, G, true> : adamw_kernel<M, G, false>,
             a);
    });
  });
}

}  // namespace nibble::cuda
