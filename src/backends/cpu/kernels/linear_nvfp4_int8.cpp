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
#include "hwy/cache_control.h"

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

// Dot products of kLanes rows over one block of 16 columns, four columns a step: sums start, take
// four steps (w: rows by 4 columns, x: those 4 activations in every lane) and finish. Exact in
// every variant.
enum class Dot { plain, vnni };

#if HWY_TARGET == HWY_AVX3
struct VnniSum {
  VI sum;
  HWY_INLINE explicit VnniSum(VI correction) : sum(correction) {}
  // Highway's AVX3 does not include VNNI, so the compiler's intrinsic is out of reach here.
  HWY_INLINE void step(VB w, VI x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
  }
  // The same with x in memory; saves a register.
  HWY_INLINE void step(VB w, const int8_t* q) {
    struct Four {
      int8_t q[4];
    };
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum.raw)
        : "v"(w.raw), "m"(*reinterpret_cast<const Four*>(q)));
  }
  HWY_INLINE VI finish(VI) const { return sum; }
};
#endif

// 16-bit sums of 8 products stay below 8 * 24 * 127 = 24384: no saturation.
struct PlainSum {
  using D = hn::Repartition<int16_t, DI>;
  hn::Vec<D> sum = hn::Zero(D());
  HWY_INLINE explicit PlainSum(VI) {}
  HWY_INLINE void step(VB w, VI x) {
#if HWY_TARGET == HWY_AVX3
    sum = hn::Add(sum, hn::Vec<D>{_mm512_maddubs_epi16(w.raw, x.raw)});
#elif HWY_TARGET == HWY_AVX2
    sum = hn::Add(sum, hn::Vec<D>{_mm256_maddubs_epi16(w.raw, x.raw)});
#elif HWY_TARGET == HWY_SSE4
    sum = hn::Add(sum, hn::Vec<D>{_mm_maddubs_epi16(w.raw, x.raw)});
#else
    const D d;
    const auto a = hn::BitCast(d, x), b = hn::BitCast(d, w);
    const auto even =
        hn::Mul(hn::And(b, hn::Set(d, int16_t(0xff))), hn::ShiftRight<8>(hn::ShiftLeft<8>(a)));
    // Weights are below 128: no sign to extend.
    const auto odd = hn::Mul(hn::ShiftRight<8>(b), hn::ShiftRight<8>(a));
    sum = hn::Add(sum, hn::Add(even, odd));
#endif
  }
  HWY_INLINE void step(VB w, const int8_t* q) { step(w, broadcast4(q)); }
  HWY_INLINE VI finish(VI correction) const {
    const DI di;
#if HWY_TARGET == HWY_AVX3
    return hn::Add(correction, VI{_mm512_madd_epi16(sum.raw, _mm512_set1_epi16(1))});
#elif HWY_TARGET == HWY_AVX2
    return hn::Add(correction, VI{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))});
#elif HWY_TARGET == HWY_SSE4
    return hn::Add(correction, VI{_mm_madd_epi16(sum.raw, _mm_set1_epi16(1))});
#else
    const VI pairs = hn::BitCast(di, sum);
    const VI even = hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs));
    return hn::Add(correction, hn::Add(even, hn::ShiftRight<16>(pairs)));
#endif
    (void)di;
  }
};

#if HWY_TARGET == HWY_AVX3
template <Dot dot>
using Sum = std::conditional_t<dot == Dot::vnni, VnniSum, PlainSum>;
#else
template <Dot dot>
using Sum = PlainSum;
#endif

// One block for one token; w as decode_block leaves it.
template <Dot dot>
HWY_INLINE VF dot16(const VB* w, const int8_t* q, const int32_t* correction) {
  const VI start = hn::Set(DI(), *correction);
  Sum<dot> sum(start);
  NIBBLE_UNROLL(4)
  for (int i = 0; i < 4; ++i) sum.step(w[i], q + 4 * i);
  return hn::ConvertTo(DF(), sum.finish(start));
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
        table,
        hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<uint16_t, DI>(), c))),
                low));
  }
}

// --- Few tokens: weights are decoded in registers and used at once ---

// Parts [part0, part0 + P) of a strip against T consecutive tokens of a group.
template <Dot dot, int P, int T>
HWY_INLINE void strip_kernel(const uint8_t* tile, int64_t tiles, int part0, const Int8Tile* x,
                             int64_t x_step, VF (&acc)[P][T]) {
  const DF df;
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) acc[p][t] = hn::Zero(df);
  }
  for (int64_t k = 0; k < tiles; ++k, tile += kTileBytes, x += x_step) {
    // The hardware prefetcher stops at every page; this does not. Past the end it does no harm.
    NIBBLE_UNROLL(9)
    for (int line = 0; line < 9; ++line) hwy::Prefetch(tile + kPrefetchBytes + 64 * line);
    NIBBLE_UNROLL(2)
    for (int pair = 0; pair < 2; ++pair) {
      NIBBLE_UNROLL(4)
      for (int p = 0; p < P; ++p) {
        VB w[8];
        const uint8_t* codes = tile + 256 * pair;
        const uint8_t* scales = tile + kTileCodeBytes + 32 * pair + kLanes * (part0 + p);
        decode_block(codes, part0 + p, w);
        decode_block(codes + 128, part0 + p, w + 4);
        const VF s0 = decode_scales(scales), s1 = decode_scales(scales + 16);
        NIBBLE_UNROLL(8)
        for (int t = 0; t < T; ++t) {
          const int8_t* q = x[t].q + 32 * pair;
          const int32_t* c = x[t].correction + 2 * pair;
          const VF v =
              hn::MulAdd(dot16<dot>(w + 4, q + 16, c + 1), s1, hn::Mul(dot16<dot>(w, q, c), s0));
          acc[p][t] = hn::MulAdd(v, hn::Set(df, x[t].scale[pair]), acc[p][t]);
        }
      }
    }
  }
}

struct Job {
  const LinearOutput* o;
  const Int8Rows* x;
  const uint8_t* packed;
  int64_t rows;  // of the weight
};

// T tokens from token n on.
template <Dot dot, int P, int T>
HWY_NOINLINE void strip_tokens(const Job& job, int64_t strip, int64_t n) {
  const Int8Rows& x = *job.x;
  const Int8Tile* tiles = x.tiles + n / x.group * x.group * x.tiles_across + n % x.group;
  alignas(64) float results[T * kTileRows];
  for (int part = 0; part < kParts; part += P) {
    VF acc[P][T];
    strip_kernel<dot, P, T>(job.packed + strip * x.tiles_across * kTileBytes, x.tiles_across, part,
                            tiles, x.group, acc);
    for (int p = 0; p < P; ++p) {
      for (int t = 0; t < T; ++t) {
        hn::Store(acc[p][t], DF(), results + t * kTileRows + (part + p) * kLanes);
      }
    }
  }
  write_strip(*job.o, n, T, strip * kTileRows, job.rows, results, kTileRows);
}

template <Dot dot>
HWY_INLINE void few_tokens(const Job& job, int64_t strip_begin, int64_t strip_end,
                           int64_t token_begin, int64_t token_end) {
  for (int64_t s = strip_begin; s < strip_end; ++s) {
    int64_t n = token_begin;
    // Runs are aligned and no longer than a group, so each lies in one.
    if constexpr (HWY_TARGET == HWY_AVX3) {
      for (; n + 8 <= token_end; n += 8) strip_tokens<dot, 1, 8>(job, s, n);
    }
    for (; n + 4 <= token_end; n += 4) strip_tokens<dot, 1, 4>(job, s, n);
    for (; n + 2 <= token_end; n += 2) strip_tokens<dot, 1, 2>(job, s, n);
    for (; n < token_end; ++n) strip_tokens<dot, kParts, 1>(job, s, n);
  }
}

// --- Many tokens: weights are decoded once into the first-level cache and used by all ---

// Broadcasting an activation from memory costs as much as the dot product it feeds (measured: 1.3
// a cycle), so each one is used for two vectors of rows.
constexpr int kRowVectors = 2;
constexpr int kStrips = kRowVectors * kLanes > int(kTileRows) ? 2 : 1;  // decoded together
constexpr int kRowGroups = kStrips * kParts / kRowVectors;
constexpr int64_t kBlockBytes = kRowVectors * 4 * 4 * kLanes;  // decoded block of one row group
constexpr int64_t kBlockScales = kRowVectors * kLanes;
constexpr int64_t kChunkBlocks = 4 * kChunkTiles;

// Decodes tiles [k, k + tiles) of the strips from `strip` on; strips past the end repeat the last.
HWY_NOINLINE void decode_chunk(const Job& job, int64_t strip, int64_t k, int64_t tiles,
                               uint8_t* weights, float* scales) {
  const int64_t last = strips_of(job.rows) - 1;
  for (int g = 0; g < kRowGroups; ++g) {
    for (int v = 0; v < kRowVectors; ++v) {
      const int vector = g * kRowVectors + v, part = vector % kParts;
      const int64_t s = HWY_MIN(strip + vector / kParts, last);
      const uint8_t* tile = job.packed + (s * job.x->tiles_across + k) * kTileBytes;
      uint8_t* w = weights + g * kChunkBlocks * kBlockBytes + v * 16 * kLanes;
      float* f = scales + g * kChunkBlocks * kBlockScales + v * kLanes;
      for (int64_t t = 0; t < tiles; ++t, tile += kTileBytes) {
        // The same tile of the next chunk: it arrives while this chunk is multiplied.
        for (int line = 0; line < 9; ++line) {
          hwy::Prefetch(tile + kChunkTiles * kTileBytes + 64 * line);
        }
        for (int b = 0; b < 4; ++b, w += kBlockBytes, f += kBlockScales) {
          VB decoded[4];
          decode_block(tile + 128 * b, part, decoded);
          for (int i = 0; i < 4; ++i) hn::Store(decoded[i], DB(), w + 4 * kLanes * i);
          hn::Store(decode_scales(tile + kTileCodeBytes + 16 * b + kLanes * part), DF(), f);
        }
      }
    }
  }
}

// One row group of a decoded chunk against T tokens; sums[t * stride] holds what came before.
template <Dot dot, int T>
HWY_NOINLINE void chunk_kernel(const uint8_t* w, const float* scales, int64_t tiles,
                               const Int8Tile* x, int64_t x_step, float* sums, int64_t stride) {
  const DF df;
  const DB d8;
  VF acc[kRowVectors][T];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRowVectors; ++r) {
      acc[r][t] = hn::Load(df, sums + t * stride + r * kLanes);
    }
  }
  for (int64_t k = 0; k < tiles; ++k, x += x_step) {
    for (int pair = 0; pair < 2; ++pair) {
      VF v[kRowVectors][T];
      NIBBLE_UNROLL(2)
      for (int half = 0; half < 2; ++half, w += kBlockBytes, scales += kBlockScales) {
        NIBBLE_UNROLL(4)
        for (int t = 0; t < T; ++t) {
          const int8_t* q = x[t].q + 32 * pair + 16 * half;
          const VI start = hn::Set(DI(), x[t].correction[2 * pair + half]);
          Sum<dot> sum[kRowVectors] = {Sum<dot>(start), Sum<dot>(start)};
          NIBBLE_UNROLL(4)
          for (int i = 0; i < 4; ++i) {
            const VI four = broadcast4(q + 4 * i);
            NIBBLE_UNROLL(2)
            for (int r = 0; r < kRowVectors; ++r) {
              sum[r].step(hn::Load(d8, w + (4 * r + i) * 4 * kLanes), four);
            }
          }
          NIBBLE_UNROLL(2)
          for (int r = 0; r < kRowVectors; ++r) {
            const VF d = hn::ConvertTo(df, sum[r].finish(start));
            const VF s = hn::Load(df, scales + r * kLanes);
            v[r][t] = half == 0 ? hn::Mul(d, s) : hn::MulAdd(d, s, v[r][t]);
          }
        }
      }
      NIBBLE_UNROLL(4)
      for (int t = 0; t < T; ++t) {
        const VF scale = hn::Set(df, x[t].scale[pair]);
        NIBBLE_UNROLL(2)
        for (int r = 0; r < kRowVectors; ++r) acc[r][t] = hn::MulAdd(v[r][t], scale, acc[r][t]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < kRowVectors; ++r) {
      hn::Store(acc[r][t], df, sums + t * stride + r * kLanes);
    }
  }
}

template <Dot dot>
HWY_INLINE void many_tokens(const Job& job, int64_t strip_begin, int64_t strip_end,
                            int64_t token_begin, int64_t token_end, std::byte* scratch) {
  constexpr int kTokens = HWY_TARGET == HWY_AVX3 ? 4 : 2;  // what the registers hold
  constexpr int64_t kStride = kStrips * kTileRows;
  uint8_t* weights = reinterpret_cast<uint8_t*>(scratch);
  float* scales = reinterpret_cast<float*>(weights + kStrips * kChunkTiles * kTileRows * kTileCols);
  float* sums = scales + kStrips * kChunkBlocks * kTileRows;
  const Int8Rows& x = *job.x;
  for (int64_t s = strip_begin; s < strip_end; s += kStrips) {
    std::memset(sums, 0, size_t((token_end - token_begin) * kStride) * sizeof(float));
    for (int64_t k = 0; k < x.tiles_across; k += kChunkTiles) {
      const int64_t tiles = HWY_MIN(kChunkTiles, x.tiles_across - k);
      decode_chunk(job, s, k, tiles, weights, scales);
      for (int64_t n = token_begin; n < token_end;) {
        const Int8Tile* tile = x.tiles + (n / x.group * x.tiles_across + k) * x.group + n % x.group;
        // Groups are multiples of kTokens, so a run of them never leaves its group.
        const bool whole = n + kTokens <= token_end;
        for (int g = 0; g < kRowGroups; ++g) {
          const uint8_t* w = weights + g * kChunkBlocks * kBlockBytes;
          const float* f = scales + g * kChunkBlocks * kBlockScales;
          float* to = sums + (n - token_begin) * kStride + g * kRowVectors * kLanes;
          if (whole) {
            chunk_kernel<dot, kTokens>(w, f, tiles, tile, x.group, to, kStride);
          } else {
            chunk_kernel<dot, 1>(w, f, tiles, tile, x.group, to, kStride);
          }
        }
        n += whole ? kTokens : 1;
      }
    }
    for (int64_t i = 0; i < kStrips && s + i < strip_end; ++i) {
      write_strip(*job.o, token_begin, token_end - token_begin, (s + i) * kTileRows, job.rows,
                  sums + i * kTileRows, kStride);
    }
  }
}

template <Dot dot>
HWY_INLINE void strips_with(const Job& job, int64_t strip_begin, int64_t strip_end,
                            int64_t token_begin, int64_t token_end, std::byte* scratch) {
  if (job.x->count <= kFewTokens) {
    few_tokens<dot>(job, strip_begin, strip_end, token_begin, token_end);
  } else {
    many_tokens<dot>(job, strip_begin, strip_end, token_begin, token_end, scratch);
  }
}

void int8_strips(const LinearOutput& o, const Int8Rows& x, const uint8_t* packed, int64_t rows,
                 int64_t strip_begin, int64_t strip_end, int64_t token_begin, int64_t token_end,
                 std::byte* scratch, bool vnni) {
  const Job job{&o, &x, packed, rows};
#if HWY_TARGET == HWY_AVX3
  if (vnni) {
    strips_with<Dot::vnni>(job, strip_begin, strip_end, token_begin, token_end, scratch);
    return;
  }
#endif
  (void)vnni;
  strips_with<Dot::plain>(job, strip_begin, strip_end, token_begin, token_end, scratch);
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(int8_strips);

void nvfp4_int8_strips(const LinearOutput& o, const Int8Rows& x, const LinearWeight& w,
                       int64_t strip_begin, int64_t strip_end, int64_t token_begin,
                       int64_t token_end, std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(int8_strips)
  (o, x, w.packed.as<uint8_t>(), w.out, strip_begin, strip_end, token_begin, token_end, scratch,
   use_vnni());
}

}  // namespace nibble::cpu
#endif
