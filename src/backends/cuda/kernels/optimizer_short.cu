// SPDX-License-Identifier: MIT
// AdamW for a bf16 master, bf16 gradients and int8 moments: the bits of optimizer_step.cuh with a
// third of the instructions. A warp whose values are beyond what the short ways below were proved
// for (huge or tiny ones, NaN, the end of a parameter) takes the general one.
#include <array>
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/kernels/optimizer_step.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

// The keys of Philox's rounds, two each: the host makes them once.
constexpr std::array<uint32_t, 2 * kPhiloxRounds> philox_keys(uint64_t seed) {
  std::array<uint32_t, 2 * kPhiloxRounds> keys{};
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (size_t round = 0; round < size_t(kPhiloxRounds); ++round) {
    keys[2 * round] = k0, keys[2 * round + 1] = k1;
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return keys;
}
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

__global__ void __launch_bounds__(kAdamwThreads, 4)
    adamw_short_kernel(const __grid_constant__ AdamwArgs a, const __grid_constant__ ShortTerms s) {
  __shared__ ShortTables t;
  static_assert(sizeof(ShortTables) / 16 <= kAdamwThreads);
  if (threadIdx.x < sizeof(ShortTables) / 16) {
    reinterpret_cast<uint4*>(&t)[threadIdx.x] =
        reinterpret_cast<const uint4*>(&kShortTables)[threadIdx.x];
  }
  wait_for_previous();
  const int64_t element = a.begin + (int64_t(blockIdx.x) * kAdamwThreads + threadIdx.x) * kOwn;
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
}  // namespace

bool adamw_short(const Context& c, const AdamwArgs& a) {
  ShortTerms terms;
  if (!a.aligned || a.from_quantised || !short_terms(a, &terms)) return false;
  launch(c, {dim3(blocks_for(a.end - a.begin, kAdamwThreads * kOwn)), dim3(kAdamwThreads)},
         adamw_short_kernel, a, terms);
  return true;
}

}  // namespace nibble::cuda
