// SPDX-License-Identifier: MIT
// AdamW for a bf16 master, bf16 gradients and int8 moments in a third of the instructions of
// optimizer_step.cuh. Constants are folded, products fused, root and quotient approximate (2^-22),
// codes by quant/moment_cells.h: results are those of the CPU but for a rounding, here and there a
// step of a code or of bf16 (tests/ops/adamw_close_test.cpp has the bounds). They depend on the
// block alone, so runs, chunks and resumed runs agree bit for bit. Blocks with values out of range
// (huge or tiny ones, NaN, the end of a parameter) take the general way.
#include <array>
#include <cmath>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/kernels/optimizer_step.cuh"
#include "backends/cuda/launch.h"
#include "quant/moment_cells.h"

namespace nibble::cuda {
namespace {

// Philox with what is the same for all elements of a launch done by the host: the keys, and of the
// first two rounds whatever does not depend on the element.
struct PhiloxTerms {
  uint32_t first2, second0, second2, third2;  // the keys, and what the index has no part in
  uint32_t keys[2 * kPhiloxRounds];

  PhiloxTerms() = default;
  PhiloxTerms(uint64_t seed, uint64_t stream) {
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      keys[2 * round] = k0, keys[2 * round + 1] = k1;
      k0 += kPhiloxKeyStep0;
      k1 += kPhiloxKeyStep1;
    }
    // Rounds 1 and 2 with 0 for whatever depends on the index.
    const auto product = [](uint32_t a, uint32_t b) { return uint64_t(a) * b; };
    uint32_t c[4] = {0, 0, uint32_t(stream), uint32_t(stream >> 32)};
    philox_round(c, keys[0], keys[1], product);
    first2 = c[2], c[2] = 0;
    philox_round(c, keys[2], keys[3], product);
    second0 = c[0], second2 = c[2], third2 = c[3] ^ keys[5];
  }
};
// philox(seed, stream, index), index < 2^32.
__device__ __forceinline__ void philox(const PhiloxTerms& t, uint32_t index, uint32_t* c) {
  // Products of 0 vanish at compile time.
  const auto product = [](uint32_t a, uint32_t b) { return uint64_t(a) * b; };
  c[0] = index, c[1] = c[2] = c[3] = 0;
  philox_round(c, 0, t.first2, product);
  c[0] = c[1] = 0;
  philox_round(c, t.second0, t.second2, product);
  c[3] = 0;
  philox_round(c, t.keys[4], t.third2, product);
#pragma unroll
  for (int i = 3; i < kPhiloxRounds; ++i) {
    philox_round(c, t.keys[2 * i], t.keys[2 * i + 1], product);
  }
}

// Floats of [low, high), as their bits.
struct BitRange {
  uint32_t low, size;

  BitRange() = default;
  BitRange(float l, float high)
      : low(__builtin_bit_cast(uint32_t, l)), size(__builtin_bit_cast(uint32_t, high) - low) {}
  __device__ __forceinline__ bool holds(float x) const { return __float_as_uint(x) - low < size; }
};

// Moments are kept as m / first_out and v / second_out: then a gradient needs no factor.
struct ShortTerms {
  float first_in, second_in;    // beta1 / first_out, beta2 / second_out
  float first_out, second_out;  // rest1 * grad_scale, rest2 * grad_scale^2
  float root, eps;              // step = m / (sqrt(v) * root + eps), all of the above folded in
  float decay;                  // lr * weight decay
  BitRange first, second;       // of a block's maxima
  uint32_t first_block, whole_end, end_block;  // moment blocks; from whole_end on not whole
  uint32_t row_blocks, units;                  // NVFP4 blocks of a row, and units
  uint32_t row_offset;                         // as in AdamwArgs
  uint32_t magic, shift;                       // block / row_blocks = block * magic >> (32 + shift)
  PhiloxTerms philox;
};
struct alignas(16) ShortTables {
  float m[256], v[256];  // values of the codes
  DynamicCells cells;
  float4
      integer;  // 2^23, whose low bits count; from here, as the compiler would make it eight times

  constexpr ShortTables() : m(), v(), cells(), integer{0x1p23f, 0, 0, 0} {
    for (int i = 0; i < 256; ++i) {
      m[i] = dynamic_value(kDynamicMap, uint8_t(i));
      v[i] = log_value(kLogMap, uint8_t(i));
    }
  }
};
static_assert(sizeof(ShortTables) % 16 == 0);
__device__ const ShortTables kShortTables;  // not constant memory: lanes read different words

constexpr unsigned kBlocksPerSm = 4;
constexpr float kLargestFirst = 0x1p60f, kLargestSecond = 0x1p100f;

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float approximate_sqrt(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float approximate_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// A byte, 0 the lowest, of each of four words.
template <int kByte>
__device__ __forceinline__ uint32_t four_bytes(const uint32_t* x) {
  constexpr uint32_t kTwo = uint32_t(kByte) | uint32_t(4 + kByte) << 4;
  return __byte_perm(__byte_perm(x[0], x[1], kTwo), __byte_perm(x[2], x[3], kTwo), 0x5410);
}
// Entry byte i of x of a table of floats at 4 * quarter, a multiple of 1024.
template <int kOffset>
__device__ __forceinline__ float looked_up(uint32_t quarter, const uint2& x, int i) {
  float y;
  asm("ld.shared.f32 %0, [%1 + %2];"
      : "=f"(y)
      : "r"(__byte_perm(i < 4 ? x.x : x.y, quarter, 0x7650u + uint32_t(i % 4)) * 4), "n"(kOffset));
  return y;
}

// cell_code by addresses: `cells` is that of ShortTables::cells, kFirstCell words before.
__device__ __forceinline__ uint32_t short_cell_code(uint32_t cells, float magnitude,
                                                    float inverse) {
  const float x = fmaf(magnitude, inverse, kCellOrigin);
  uint32_t word;  // shift and product apart: the compiler would make three operations of them
  asm("{.reg .u32 cell, at;\n"
      " shr.u32 cell, %1, %3;\n"
      " mad.lo.u32 at, cell, 4, %2;\n"
      " ld.shared.u32 %0, [at];}"
      : "=r"(word)
      : "r"(__float_as_uint(x)), "r"(cells), "n"(kCellShift));
  // Predicated: the compiler would choose between two results.
  asm("{.reg .pred above;\n setp.gt.f32 above, %1, %2;\n @above add.u32 %0, %0, 1;}"
      : "+r"(word)
      : "f"(x), "f"(__uint_as_float(word)));
  return word;
}

// What is left to be done for a block, by a call: outside of the short way, which keeps all
// registers.
enum class Left { nothing, everything, copy, copy_of_unchanged };

__device__ __noinline__ void do_general(const AdamwArgs& a, uint32_t at, Left left) {
  const int64_t element = int64_t(at) * kOwn;
  if (left == Left::everything) {
    step_any<bf16, bf16, true>(a, kTables, element);
  } else {
    requantize_general(a, element, left == Left::copy, static_cast<const uint4*>(a.master)[at]);
  }
}

// The NVFP4 copy of eight weights.
__device__ __forceinline__ Left requantize_short(const AdamwArgs& a, const ShortTerms& s,
                                                 uint32_t at, const uint32_t (&w)[4],
                                                 uint32_t different) {
  const bool changed = (different | __shfl_xor_sync(~0u, different, 1)) != 0;
  if (!__any_sync(~0u, changed)) return Left::nothing;
  const float amax = pair_block_amax(w);
  if (__any_sync(~0u, !(amax < kPairLimit))) {
    return changed ? Left::copy : Left::copy_of_unchanged;
  }
  const QuantisedHalf q = four_over_six_pairs(w, amax);
  if (!changed) return Left::nothing;
  // Within its unit a block lies as in a weight of one unit.
  constexpr uint32_t kRows = uint32_t(kUnitRows), kBlocks = uint32_t(kUnitCols / kNvfp4Block);
  const uint32_t block = at / 2, half = at % 2;
  const uint32_t rows = __umulhi(block, s.magic) >> s.shift, row = s.row_offset + rows;
  const uint32_t column = block - rows * s.row_blocks;
  const uint32_t unit = (row / kRows * s.units + column / kBlocks) * uint32_t(kUnitBytes);
  const BlockPlace place = block_place(kUnitCols, row % kRows, column % kBlocks);
  uint8_t* codes = a.packed + (unit + (uint32_t(place.codes) | 4 * half));
  uint8_t* scale = a.packed + (unit + uint32_t(place.scale));
  *reinterpret_cast<uint32_t*>(codes) = q.word;
  if (half == 0) *scale = q.scale;
  return Left::nothing;
}

// A warp's moment block.
template <bool kPacked, bool kDecay>
__device__ __forceinline__ Left step_short(const AdamwArgs& a, const ShortTerms& s,
                                           const ShortTables& t, uint32_t block) {
  const uint32_t lane = threadIdx.x % kLanes, at = block * kLanes + lane;
  const uint4 g4 = static_cast<const uint4*>(a.grad)[at];
  const uint4 w4 = static_cast<const uint4*>(a.master)[at];
  const uint2 m2 = reinterpret_cast<const uint2*>(a.m.codes)[at];
  const uint2 v2 = reinterpret_cast<const uint2*>(a.v.codes)[at];
  const float scale_m = a.m.scales[block], scale_v = a.v.scales[block];
  const uint32_t g[4] = {g4.x, g4.y, g4.z, g4.w}, w[4] = {w4.x, w4.y, w4.z, w4.w};
  const float in_m = scale_m * s.first_in, in_v = fabsf(scale_v) * s.second_in;
  const uint32_t quarter = uint32_t(__cvta_generic_to_shared(t.m)) / 4;
  float m[kOwn], v[kOwn], top_m = 0, top_v = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float gi = i % 2 ? high_float(g[i / 2]) : low_float(g[i / 2]);
    m[i] = fmaf(looked_up<0>(quarter, m2, i), in_m, gi);
    v[i] = fmaf(gi, gi, looked_up<sizeof(t.m)>(quarter, v2, i) * in_v);
    top_m = max_or_nan(fabsf(m[i]), top_m);
    top_v = max_or_nan(v[i], top_v);
  }
  const float amax_m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_m)));
  const float amax_v = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_v)));
  const float new_m = amax_m * s.first_out, new_v = amax_v * s.second_out;

  // Is everything in range? A NaN or infinity in gradients or scales shows in the maxima. Masters
  // below 2 are the common case, and finite.
  const bool large = ((w[0] | w[1] | w[2] | w[3]) & 0x40004000u) != 0;
  if (__any_sync(~0u, large)) return Left::everything;
  if (!(s.first.holds(amax_m) && s.second.holds(amax_v))) {
    if (!((amax_m == 0 || s.first.holds(amax_m)) && (amax_v == 0 || s.second.holds(amax_v)))) {
      return Left::everything;
    }
  }
  if (lane == 0) {
    a.m.scales[block] = new_m;
    a.v.scales[block] = new_v;
  }

  uint32_t words[4], code[kOwn], next[4], different = 0;
  philox(s.philox, at, words);
  const uint32_t integer = __float_as_uint(t.integer.x);
  // All zero: infinity less a finite origin, which is the largest code.
  const float origin = amax_v == 0 ? 0.0f : LogRounding::origin(approximate_log2(amax_v));
#pragma unroll
  for (int i = 0; i < kOwn; i += 2) {
    uint32_t u[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int j = i + k;
      float x = k ? high_float(w[i / 2]) : low_float(w[i / 2]);
      if (kDecay) x = fmaf(x, -s.decay, x);
      x = fmaf(-m[j], approximate_inverse(fmaf(approximate_sqrt(v[j]), s.root, s.eps)), x);
      // Plus the low half of random_bits, which is the high one of the word for elements 4 to 7.
      u[k] = __dp2a_lo(words[j % 4], j < 4 ? 1u : 0x100u, __float_as_uint(x));
      const float draw =
          __uint_as_float(__byte_perm(words[j % 4], integer, j < 4 ? 0x7632 : 0x7610));
      const float rest = approximate_log2(LogRounding::rest(draw));
      const float y = __saturatef(LogRounding::position(approximate_log2(v[j]), rest, origin));
      code[j] = __float_as_uint(__fmaf_rd(y, LogRounding::kSpan, 0x1p23f));
    }
    next[i / 2] = __byte_perm(u[0], u[1], 0x7632);
    different |= next[i / 2] ^ w[i / 2];
  }
  // The intrinsic: the compiler would make four stores of it.
  __stwb(static_cast<uint4*>(a.master) + at, make_uint4(next[0], next[1], next[2], next[3]));
  reinterpret_cast<uint2*>(a.v.codes)[at] =
      make_uint2(four_bytes<0>(code), four_bytes<0>(code + 4));

  const float inverse_m = amax_m == 0 ? 0.0f : approximate_inverse(amax_m);
  const uint32_t cells = uint32_t(__cvta_generic_to_shared(t.cells.word)) - kFirstCell * 4;
  uint32_t top[kOwn];  // the signs
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    code[i] = short_cell_code(cells, fabsf(m[i]), inverse_m);
    top[i] = __float_as_uint(m[i]);
  }
  const auto with_signs = [](uint32_t codes, uint32_t signs) {
    return (codes & 0x7f7f7f7fu) | (signs & 0x80808080u);
  };
  reinterpret_cast<uint2*>(a.m.codes)[at] =
      make_uint2(with_signs(four_bytes<0>(code), four_bytes<3>(top)),
                 with_signs(four_bytes<0>(code + 4), four_bytes<3>(top + 4)));
  return kPacked ? requantize_short(a, s, at, next, different) : Left::nothing;
}

template <bool kPacked, bool kDecay>
__global__ void __launch_bounds__(kAdamwThreads, kBlocksPerSm)
    adamw_short_kernel(const __grid_constant__ AdamwArgs a, const __grid_constant__ ShortTerms s) {
  constexpr uint32_t kWarps = kAdamwThreads / kLanes;
  __shared__ __align__(1024) ShortTables t;
  for (uint32_t i = threadIdx.x; i < sizeof(ShortTables) / 16; i += kAdamwThreads) {
    reinterpret_cast<uint4*>(&t)[i] = reinterpret_cast<const uint4*>(&kShortTables)[i];
  }
  wait_for_previous();
  const uint32_t lane = threadIdx.x % kLanes;
  // By a shuffle, from which the compiler knows that it is the warp's.
  const uint32_t warp = __shfl_sync(~0u, threadIdx.x / kLanes, 0);
  uint32_t block = s.first_block + blockIdx.x * kWarps + warp;
  __syncthreads();
  // Warps are enough to hide the loads: values of the next block, held in registers, were spilled.
  // A call would keep `block` in local memory all the time, but for `kept`.
  __shared__ volatile uint32_t kept[kWarps];
  for (; block < s.whole_end; block += gridDim.x * kWarps) {
    const Left left = step_short<kPacked, kDecay>(a, s, t, block);
    if (__any_sync(~0u, left != Left::nothing)) {
      kept[threadIdx.x / kLanes] = block;
      do_general(a, block * kLanes + lane, left);
      block = kept[threadIdx.x / kLanes];
    }
  }
  if (block < s.end_block) do_general(a, block * kLanes + lane, Left::everything);
}

// Whether the kernel can do a step of these terms, and what it needs.
bool short_terms(const AdamwArgs& a, ShortTerms* s) {
  const AdamwTerms<float>& t = a.terms;
  const auto within = [](double x, double low, double high) { return x >= low && x <= high; };
  // Bounds that keep the scaled moments in range, and what is flushed to 0 far below eps.
  if (!within(t.eps, 0x1p-36, 1) || !within(t.beta1, 0, 1) || !within(t.rest1, 0x1p-20, 1) ||
      !within(t.beta2, 0, 1) || !within(t.rest2, 0x1p-20, 1) ||
      !within(t.inverse_bias1, 1, 0x1p20) || !within(t.inverse_bias2, 1, 0x1p20) ||
      !within(t.lr, 0x1p-60, 0x1p10) || !within(t.decay, 0, 0x1p10) ||
      !within(t.grad_scale, 0x1p-30, 0x1p10) || a.end / kOwn >= int64_t(1) << 31) {
    return false;
  }
  const double first = double(t.rest1) * double(t.grad_scale);
  const double second = double(t.rest2) * double(t.grad_scale) * double(t.grad_scale);
  const double per_step = first * double(t.inverse_bias1) * double(t.lr);
  s->first_out = float(first), s->second_out = float(second);
  s->first_in = float(double(t.beta1) / first), s->second_in = float(double(t.beta2) / second);
  s->root = float(std::sqrt(second * double(t.inverse_bias2)) / per_step);
  s->eps = float(double(t.eps) / per_step);
  s->decay = float(double(t.lr) * double(t.decay));
  s->first = BitRange(float(double(kMomentScaleFloor) / first), kLargestFirst);
  s->second = BitRange(float(double(kMomentScaleFloor) / second), kLargestSecond);
  s->first_block = uint32_t(a.begin / kMomentBlock);
  s->whole_end = uint32_t(a.end / kMomentBlock);
  s->end_block = uint32_t((a.end + kMomentBlock - 1) / kMomentBlock);
  s->philox = PhiloxTerms(a.seed, a.stream);
  s->row_blocks = s->units = s->row_offset = s->magic = s->shift = 0;
  if (!a.packed) return true;
  const int64_t blocks = a.in / kNvfp4Block;
  if (a.rule != ScaleRule::four_over_six || a.row_scale || a.in % kNvfp4Block != 0 || blocks < 2 ||
      blocks >= 1 << 20 || a.row_offset >= 1 << 30 ||
      packed_size(a.row_offset + (a.end + a.in - 1) / a.in, a.in) >= uint64_t(1) << 32) {
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
  if (!a.aligned || a.from_quantised || a.rounding != MasterRounding::stochastic ||
      !short_terms(a, &terms)) {
    return false;
  }
  // Enough blocks for every multiprocessor; each makes its tables once.
  const unsigned all = blocks_for(a.end - a.begin, kAdamwThreads * kOwn);
  const unsigned most = unsigned(c.sm_count) * kBlocksPerSm;
  const Grid grid{dim3(std::min(all, most)), dim3(kAdamwThreads)};
  const bool decay = terms.decay != 0;
  if (a.packed) {
    launch(c, grid, decay ? adamw_short_kernel<true, true> : adamw_short_kernel<true, false>, a,
           terms);
  } else {
    launch(c, grid, decay ? adamw_short_kernel<false, true> : adamw_short_kernel<false, false>, a,
           terms);
  }
  return true;
}

}  // namespace nibble::cuda
