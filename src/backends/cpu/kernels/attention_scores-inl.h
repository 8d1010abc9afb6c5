// SPDX-License-Identifier: MIT
// Scores of attention: queries times a block of keys, as floats or in pairs of bf16. Compiled once
// per target.
#if defined(NIBBLE_CPU_KERNELS_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_ATTENTION_SCORES_INL_H_
#undef NIBBLE_CPU_KERNELS_ATTENTION_SCORES_INL_H_
#else
#define NIBBLE_CPU_KERNELS_ATTENTION_SCORES_INL_H_
#endif

#include "backends/cpu/simd/product-inl.h"

#ifndef NIBBLE_CPU_ATTENTION_KEYS
#define NIBBLE_CPU_ATTENTION_KEYS
namespace nibble::cpu {

constexpr int64_t kKeyBlock = 32;  // with their values 32 KiB as floats at D = 128

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

constexpr int kKeyVectors = int(kKeyBlock) / kLanes;

// A tile of scores is four keys by as many queries as a vector has groups of four lanes.
constexpr int kTileQueries = kLanes / 4;

// The lanes of each acc[q][k] added up: group q of the result holds the sums for keys 0 to 3. All
// sums are formed in the same order: lanes 0 + 2 and 1 + 3 of each group of four, then groups.
HWY_INLINE VF sum_tile(const VF (&acc)[kTileQueries][4]) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  const auto low = [&](VF a, VF b) HWY_ATTR {
    return hn::BitCast(df, hn::InterleaveLower(dd, hn::BitCast(dd, a), hn::BitCast(dd, b)));
  };
  const auto high = [&](VF a, VF b) HWY_ATTR {
    return hn::BitCast(df, hn::InterleaveUpper(dd, hn::BitCast(dd, a), hn::BitCast(dd, b)));
  };
  VF r[kTileQueries];
  for (int q = 0; q < kTileQueries; ++q) {
    const VF ab = hn::Add(hn::InterleaveLower(df, acc[q][0], acc[q][1]),
                          hn::InterleaveUpper(df, acc[q][0], acc[q][1]));
    const VF cd = hn::Add(hn::InterleaveLower(df, acc[q][2], acc[q][3]),
                          hn::InterleaveUpper(df, acc[q][2], acc[q][3]));
    r[q] = hn::Add(low(ab, cd), high(ab, cd));
  }
#if HWY_TARGET == HWY_AVX3
  const auto pairs = [&](VF a, VF b) HWY_ATTR {
    return hn::Add(VF{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)},
                   VF{_mm512_shuffle_f32x4(a.raw, b.raw, 0xdd)});
  };
  return pairs(pairs(r[0], r[1]), pairs(r[2], r[3]));
#elif HWY_TARGET == HWY_AVX2
  return hn::Add(hn::ConcatLowerLower(df, r[1], r[0]), hn::ConcatUpperUpper(df, r[1], r[0]));
#else
  static_assert(kTileQueries == 1);
  return r[0];
#endif
}

// scores[i][j] = scale * q[i] . key j for `rows` <= kTileQueries queries and `count` keys, rounded
// up to whole tiles.
HWY_NOINLINE void score_rows(const float* q, int64_t rows, const float* keys, int64_t width,
                             int64_t count, float scale, float* scores) {
  const DF df;
  const float* from[kTileQueries];
  for (int i = 0; i < kTileQueries; ++i) from[i] = q + HWY_MIN(int64_t(i), rows - 1) * width;
  for (int64_t j = 0; j < count; j += 4, keys += 4 * width) {
    VF acc[kTileQueries][4];
    for (int i = 0; i < kTileQueries; ++i) {
      for (int k = 0; k < 4; ++k) acc[i][k] = hn::Zero(df);
    }
    int64_t d = 0;
    for (; d + kLanes <= width; d += kLanes) {
      VF kv[4];
      NIBBLE_UNROLL(4)
      for (int k = 0; k < 4; ++k) kv[k] = load(keys + k * width + d);
      NIBBLE_UNROLL(4)
      for (int i = 0; i < kTileQueries; ++i) {
        const VF x = load(from[i] + d);
        NIBBLE_UNROLL(4)
        for (int k = 0; k < 4; ++k) acc[i][k] = hn::MulAdd(x, kv[k], acc[i][k]);
      }
    }
    if (d < width) {
      for (int i = 0; i < kTileQueries; ++i) {
        const VF x = load_tail(from[i] + d, width - d);
        for (int k = 0; k < 4; ++k) {
          acc[i][k] = hn::MulAdd(x, load_tail(keys + k * width + d, width - d), acc[i][k]);
        }
      }
    }
    alignas(64) float tile[kLanes];
    hn::Store(hn::Mul(sum_tile(acc), hn::Set(df, scale)), df, tile);
    for (int64_t i = 0; i < rows; ++i) std::memcpy(scores + i * kKeyBlock + j, tile + 4 * i, 16);
  }
}

// The same in steps of E, which are fewer than `width`; keys [step][kKeyBlock].
template <class E>
HWY_NOINLINE void score_steps(const float* q, int64_t rows, const float* keys, int64_t width,
                              float scale, float* scores) {
  const DF df;
  product<E, false>(scores, kKeyBlock, 0, rows, kKeyVectors, {q, width, 1}, keys, kKeyBlock,
                    [&](int64_t, int64_t) {
                      return Needed{0, (width + E::kDepth - 1) / E::kDepth, kKeyBlock};
                    });
  for (int64_t i = 0; i < rows * kKeyBlock; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(df, scores + i), hn::Set(df, scale)), df, scores + i);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
