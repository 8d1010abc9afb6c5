// SPDX-License-Identifier: MIT
// The arithmetic of adamw_fast.cu: one moment block by one warp, eight elements a lane.
#pragma once
#include "backends/cuda/kernels/optimizer/adamw_fast_args.cuh"

namespace nibble::cuda {
namespace {

// What a lane reads.
struct FastInput {
  uint4 grad, master;
  uint2 m, v;
  float scale_m, scale_v;
};

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
// The lowest byte of each of four words whose next byte is 0: two of three operations are IMADs,
// which relieves the ALU pipe.
__device__ __forceinline__ uint32_t four_lowest(const uint32_t* x) {
  return __byte_perm(x[1] * 256 + x[0], x[3] * 256 + x[2], 0x5410);
}
// Table lookup: entry (byte i of x) of a float table at shared address 4 * quarter, a multiple of
// 1024.
template <int kOffset>
__device__ __forceinline__ float looked_up(uint32_t quarter, const uint2& x, int i) {
  float y;
  asm("ld.shared.f32 %0, [%1 + %2];"
      : "=f"(y)
      : "r"(__byte_perm(i < 4 ? x.x : x.y, quarter, 0x7650u + uint32_t(i % 4)) * 4), "n"(kOffset));
  return y;
}

// cell_code by shared addresses: `cells` points kFirstCell words before FastTables::cells.
__device__ __forceinline__ uint32_t fast_cell_code(uint32_t cells, float magnitude, float inverse) {
  const float x = fmaf(magnitude, inverse, kCellOrigin);
  uint32_t word;  // shift and product apart: the compiler would make three operations of them
  asm("{.reg .u32 cell, at;\n"
      " shr.u32 cell, %1, %3;\n"
      " mad.lo.u32 at, cell, 4, %2;\n"
      " ld.shared.u32 %0, [at];}"
      : "=r"(word)
      : "r"(__float_as_uint(x)), "r"(cells), "n"(kCellShift));
  // Predicated add: the compiler would select between two results.
  asm("{.reg .pred above;\n setp.gt.f32 above, %1, %2;\n @above add.u32 %0, %0, 1;}"
      : "+r"(word)
      : "f"(x), "f"(__uint_as_float(word)));
  return word;
}

// Requantises eight weights below 2 in magnitude into the packed copy, if the block changed.
__device__ __forceinline__ void fast_requantize(const FastTask& s, uint32_t at,
                                                const uint32_t (&w)[4], uint32_t different) {
  const bool changed = (different | __shfl_xor_sync(~0u, different, 1)) != 0;
  if (!__any_sync(~0u, changed)) return;
  const QuantisedHalf q = four_over_six_pairs(w, pair_block_amax(w));
  if (!changed) return;
  // Within its unit a block lies as in a weight of one unit.
  constexpr uint32_t kRows = uint32_t(kUnitRows), kBlocks = uint32_t(kUnitCols / kNvfp4Block);
  const uint32_t block = at / 2, half = at % 2;
  const uint32_t rows = __umulhi(block, s.magic) >> s.shift, row = s.row_offset + rows;
  const uint32_t column = block - rows * s.row_blocks;
  const uint32_t unit = (row / kRows * s.units + column / kBlocks) * uint32_t(kUnitBytes);
  const BlockPlace place = block_place(kUnitCols, row % kRows, column % kBlocks);
  uint8_t* codes = s.packed + (unit + (uint32_t(place.codes) | 4 * half));
  uint8_t* scale = s.packed + (unit + uint32_t(place.scale));
  __stwb(reinterpret_cast<uint32_t*>(codes), q.word);
  if (half == 0) __stwb(scale, q.scale);
}

// Whether a weight is 2 or more, or no number.
__device__ __forceinline__ bool any_large(const uint32_t (&w)[4]) {
  return ((w[0] | w[1] | w[2] | w[3]) & 0x40004000u) != 0;
}

// One moment block by one warp. False: it is for the generic path, and nothing was written.
template <bool kPacked, bool kDecay>
__device__ __forceinline__ bool fast_step(const FastTerms& c, const FastTask& s,
                                          const FastTables& t, uint32_t block, const FastInput& x) {
  const uint32_t lane = threadIdx.x % kLanes, at = block * kLanes + lane;
  const uint32_t g[4] = {x.grad.x, x.grad.y, x.grad.z, x.grad.w};
  const uint32_t w[4] = {x.master.x, x.master.y, x.master.z, x.master.w};
  const float in_m = x.scale_m * c.first_in, in_v = fabsf(x.scale_v) * c.second_in;
  const uint32_t quarter = uint32_t(__cvta_generic_to_shared(t.m)) / 4;
  float m[kPerLane], v[kPerLane], top_m = 0, top_v = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float gi = i % 2 ? high_product(g[i / 2]) : low_float(g[i / 2]);
    m[i] = fmaf(looked_up<0>(quarter, x.m, i), in_m, gi);
    v[i] = fmaf(gi, gi, looked_up<sizeof(t.m)>(quarter, x.v, i) * in_v);
    top_m = max_or_nan(fabsf(m[i]), top_m);
    top_v = max_or_nan(v[i], top_v);
  }
  const float amax_m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_m)));
  const float amax_v = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top_v)));

  // Range check. A NaN or infinity in gradients or scales shows in the maxima. Masters below 2 are
  // the common case, and finite.
  if (!(c.first.holds(amax_m) && c.second.holds(amax_v))) {
    if (!((amax_m == 0 || c.first.holds(amax_m)) && (amax_v == 0 || c.second.holds(amax_v)))) {
      return false;
    }
  }

  uint32_t words[4], code[kPerLane], next[4], different = 0;
  philox(c.keys, s.philox, at, words);
  const uint32_t integer = __float_as_uint(t.integer.x);
  // All zero: infinity less a finite origin, which is the largest code.
  const float origin = amax_v == 0 ? 0.0f : LogRounding::origin(approximate_log2(amax_v));
#pragma unroll
  for (int i = 0; i < kPerLane; i += 2) {
    uint32_t u[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int j = i + k;
      float y = k ? high_float(w[i / 2]) : low_float(w[i / 2]);
      if (kDecay) y = fmaf(y, -s.shrink, y);
      y = fmaf(-m[j], approximate_inverse(fmaf(approximate_sqrt(v[j]), s.root, s.eps)), y);
      // Plus the low half of random_bits, which is the high one of the word for elements 4 to 7.
      u[k] = __dp2a_lo(words[j % 4], j < 4 ? 1u : 0x100u, __float_as_uint(y));
      const float draw =
          __uint_as_float(__byte_perm(words[j % 4], integer, j < 4 ? 0x7632 : 0x7610));
      const float rest = approximate_log2(LogRounding::rest(draw));
      const float p = __saturatef(LogRounding::position(approximate_log2(v[j]), rest, origin));
      code[j] = __float_as_uint(__fmaf_rd(p, LogRounding::kSpan, 0x1p23f));
    }
    next[i / 2] = __byte_perm(u[0], u[1], 0x7632);
    different |= next[i / 2] ^ w[i / 2];
  }
  if (__any_sync(~0u, any_large(w) || any_large(next))) return false;
  if (lane == 0) {
    __stwb(s.m_scales + block, amax_m * c.first_out);
    __stwb(s.v_scales + block, amax_v * c.second_out);
  }
  // Store intrinsics, as the pointers come from shared memory and the compiler cannot tell that
  // they are global.
  __stwb(static_cast<uint4*>(s.master) + at, make_uint4(next[0], next[1], next[2], next[3]));
  __stwb(reinterpret_cast<uint2*>(s.v) + at, make_uint2(four_lowest(code), four_lowest(code + 4)));

  const float inverse_m = amax_m == 0 ? 0.0f : approximate_inverse(amax_m);
  const uint32_t cells = uint32_t(__cvta_generic_to_shared(t.cells.word)) - kFirstCell * 4;
  uint32_t top[kPerLane];  // the signs
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    code[i] = fast_cell_code(cells, fabsf(m[i]), inverse_m);
    top[i] = __float_as_uint(m[i]);
  }
  const auto with_signs = [](uint32_t codes, uint32_t signs) {
    return (codes & 0x7f7f7f7fu) | (signs & 0x80808080u);
  };
  __stwb(reinterpret_cast<uint2*>(s.m) + at,
         make_uint2(with_signs(four_bytes<0>(code), four_bytes<3>(top)),
                    with_signs(four_bytes<0>(code + 4), four_bytes<3>(top + 4))));
  if (kPacked) fast_requantize(s, at, next, different);
  return true;
}

}  // namespace
}  // namespace nibble::cuda
