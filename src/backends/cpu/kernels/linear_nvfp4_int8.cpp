// SPDX-License-Identifier: MIT
// NVFP4 weights times int8 activations: integer dot products over blocks of 16, scaled and summed
// in fp32, in order of K, one lane per weight row.
//
// A weight enters as the unsigned byte 2 * e2m1 + 12 (0..24), because the 8-bit instructions
// multiply unsigned by signed; the -12 is added back per block from the sum of the activations.
// The factor 2 and the 2^-8 of decode_scales are in Int8Tile::scale: powers of two, exact.
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/simd/target_control.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/linear_nvfp4_int8.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

using DB = hn::Repartition<uint8_t, DI>;
using VB = hn::Vec<DB>;

alignas(16) constexpr uint8_t kCodeTable[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                12, 11, 10, 9,  8,  6,  4,  0};

HWY_INLINE VI broadcast4(const int8_t* q) {
  int32_t bits;
  std::memcpy(&bits, q, 4);
  return hn::Set(DI(), bits);
}

// start + dot of 16 weights (w[i]: columns 4i .. 4i+3 of kLanes rows) with q[0..15], per row.
// Exact in every variant.
enum class Dot { plain, vnni };

template <Dot dot>
HWY_INLINE VI dot16(const VB* w, const int8_t* q, const int32_t* correction) {
  const DI di;
  const VI start = hn::Set(di, *correction);
#if HWY_TARGET == HWY_AVX3
  if constexpr (dot == Dot::vnni) {
    // Highway's AVX3 does not include VNNI, so the compiler's intrinsic is out of reach here.
    __m512i acc = start.raw;
    struct Four {
      int8_t q[4];
    };
    const Four* q4 = reinterpret_cast<const Four*>(q);
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[0].raw), "m"(q4[0]));
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[1].raw), "m"(q4[1]));
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[2].raw), "m"(q4[2]));
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[3].raw), "m"(q4[3]));
    return VI{acc};
  }
#endif
  // Sums of 8 products stay below 8 * 24 * 127 = 24384: no saturation in 16 bits.
#if HWY_TARGET == HWY_AVX3
  __m512i s = _mm512_maddubs_epi16(w[0].raw, broadcast4(q).raw);
  for (int i = 1; i < 4; ++i) {
    s = _mm512_add_epi16(s, _mm512_maddubs_epi16(w[i].raw, broadcast4(q + 4 * i).raw));
  }
  return hn::Add(start, VI{_mm512_madd_epi16(s, _mm512_set1_epi16(1))});
#elif HWY_TARGET == HWY_AVX2
  __m256i s = _mm256_maddubs_epi16(w[0].raw, broadcast4(q).raw);
  for (int i = 1; i < 4; ++i) {
    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w[i].raw, broadcast4(q + 4 * i).raw));
  }
  return hn::Add(start, VI{_mm256_madd_epi16(s, _mm256_set1_epi16(1))});
#elif HWY_TARGET == HWY_SSE4
  __m128i s = _mm_maddubs_epi16(w[0].raw, broadcast4(q).raw);
  for (int i = 1; i < 4; ++i) {
    s = _mm_add_epi16(s, _mm_maddubs_epi16(w[i].raw, broadcast4(q + 4 * i).raw));
  }
  return hn::Add(start, VI{_mm_madd_epi16(s, _mm_set1_epi16(1))});
#else
  const hn::Repartition<int16_t, DI> d16;
  auto s = hn::Zero(d16);
  for (int i = 0; i < 4; ++i) {
    const auto a = hn::BitCast(d16, broadcast4(q + 4 * i));
    const auto wi = hn::BitCast(d16, w[i]);
    const auto w_even = hn::And(wi, hn::Set(d16, int16_t(0xff)));
    const auto w_odd = hn::ShiftRight<8>(wi);  // weights are below 128: no sign to extend
    const auto a_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(a));
    s = hn::Add(s, hn::Add(hn::Mul(w_even, a_even), hn::Mul(w_odd, hn::ShiftRight<8>(a))));
  }
  const VI pairs = hn::BitCast(di, s);
  const VI even = hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs));
  return hn::Add(start, hn::Add(even, hn::ShiftRight<16>(pairs)));
#endif
}

// Rows part * kLanes .. of one block: four vectors of "rows by 4 columns".
HWY_INLINE void decode_block(const uint8_t* codes, int part, VB* w) {
  const DB d8;
  const VB table = hn::LoadDup128(d8, kCodeTable);
  const VB low = hn::Set(d8, uint8_t(15));
  for (int h = 0; h < 2; ++h) {
    const VB c = hn::LoadU(d8, codes + 64 * h + 4 * kLanes * part);
    w[2 * h] = hn::TableLookupBytes(table, hn::And(c, low));
    w[2 * h + 1] = hn::TableLookupBytes(
        table, hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<uint16_t, DI>(), c))), low));
  }
}

// Parts [part0, part0 + P) of a strip against T consecutive tokens of a group.
template <Dot dot, int P, int T>
HWY_INLINE void strip_kernel(const uint8_t* tile, int64_t tiles, int part0, const Int8Tile* x,
                             int64_t x_step, VF (&acc)[P][T]) {
  const DF df;
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) acc[p][t] = hn::Zero(df);
  }
  for (int64_t k = 0; k < tiles; ++k, tile += kTileBytes, x += x_step) {
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        VB w[8];
        const uint8_t* codes = tile + 256 * pair;
        const uint8_t* scales = tile + kTileCodeBytes + 32 * pair + kLanes * (part0 + p);
        decode_block(codes, part0 + p, w);
        decode_block(codes + 128, part0 + p, w + 4);
        const VF s0 = decode_scales(scales), s1 = decode_scales(scales + 16);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const int8_t* q = x[t].q + 32 * pair;
          const int32_t* c = x[t].correction + 2 * pair;
          const VF d0 = hn::ConvertTo(df, dot16<dot>(w, q, c));
          const VF d1 = hn::ConvertTo(df, dot16<dot>(w + 4, q + 16, c + 1));
          const VF v = hn::MulAdd(d1, s1, hn::Mul(d0, s0));
          acc[p][t] = hn::MulAdd(v, hn::Set(df, x[t].scale[pair]), acc[p][t]);
        }
      }
    }
  }
}

struct StripWork {
  const LinearOutput* o;
  const uint8_t* strip;
  int64_t tiles, row0, rows;
};

// T tokens from token n on, whose tiles start at x.
template <Dot dot, int P, int T>
HWY_NOINLINE void strip_tokens(const StripWork& s, const Int8Tile* x, int64_t x_step, int64_t n) {
  for (int part = 0; part < kParts; part += P) {
    VF acc[P][T];
    strip_kernel<dot, P, T>(s.strip, s.tiles, part, x, x_step, acc);
    for (int p = 0; p < P; ++p) {
      write_part<T>(*s.o, n, s.row0 + (part + p) * kLanes, s.rows, acc[p]);
    }
  }
}

template <Dot dot>
HWY_INLINE void strips_with(const LinearOutput& o, const Int8Rows& x, const uint8_t* packed,
                            int64_t rows, int64_t strip_begin, int64_t strip_end,
                            int64_t token_begin, int64_t token_end) {
  constexpr int kMany = HWY_TARGET == HWY_AVX3 ? 16 : 4;  // what the registers hold
  const int64_t tiles = x.tiles_across;
  for (int64_t s = strip_begin; s < strip_end; ++s) {
    const StripWork work{&o, packed + s * tiles * kTileBytes, tiles, s * kTileRows, rows};
    for (int64_t g = token_begin; g < token_end; g += x.group) {
      const Int8Tile* group = x.tiles + g * tiles;
      const int64_t count = HWY_MIN(x.group, token_end - g);
      int64_t t = 0;
      if constexpr (kMany == 16) {
        for (; t + 16 <= count; t += 16) {
          strip_tokens<dot, 1, 16>(work, group + t, x.group, g + t);
        }
        for (; t + 8 <= count; t += 8) {
          strip_tokens<dot, 1, 8>(work, group + t, x.group, g + t);
        }
      }
      for (; t + 4 <= count; t += 4) strip_tokens<dot, 1, 4>(work, group + t, x.group, g + t);
      for (; t + 2 <= count; t += 2) strip_tokens<dot, 1, 2>(work, group + t, x.group, g + t);
      for (; t < count; ++t) strip_tokens<dot, kParts, 1>(work, group + t, x.group, g + t);
    }
  }
}

void int8_strips(const LinearOutput& o, const Int8Rows& x, const uint8_t* packed, int64_t rows,
                 int64_t strip_begin, int64_t strip_end, int64_t token_begin, int64_t token_end,
                 bool vnni) {
#if HWY_TARGET == HWY_AVX3
  if (vnni) {
    strips_with<Dot::vnni>(o, x, packed, rows, strip_begin, strip_end, token_begin, token_end);
    return;
  }
#endif
  (void)vnni;
  strips_with<Dot::plain>(o, x, packed, rows, strip_begin, strip_end, token_begin, token_end);
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(int8_strips);

void nvfp4_int8_strips(const LinearOutput& o, const Int8Rows& x, const LinearWeight& w,
                       int64_t strip_begin, int64_t strip_end, int64_t token_begin,
                       int64_t token_end) {
  HWY_DYNAMIC_DISPATCH(int8_strips)
  (o, x, w.packed.as<uint8_t>(), w.out, strip_begin, strip_end, token_begin, token_end, use_vnni());
}

}  // namespace nibble::cpu
#endif
