// SPDX-License-Identifier: MIT
// The inner kernel of the matrix product, over packed panels.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/gemm_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/kernels/gemm_pack-inl.h"
#include "backends/cpu/kernels/gemm_pack_nvfp4-inl.h"
#include "backends/cpu/kernels/gemm_write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// A tile's sums, two vectors of B and one element of A fill the registers.
constexpr int kRows = HWY_TARGET == HWY_AVX3   ? 14
                      : HWY_TARGET == HWY_AVX2 ? 6
                      : HWY_TARGET == HWY_NEON ? 8
                                               : 4;
constexpr int kTileFloats = kRows * kCols;
// One step of K in a panel of A: whole vectors, of which kRows elements are used.
constexpr int kStep = (kRows + kLanes - 1) / kLanes * kLanes;

using Sums = VF[kRows][2];

template <class E>
HWY_INLINE void multiply_step(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Sums& s) {
  const DF df;
  const VF b0 = hn::Load(df, b), b1 = hn::Load(df, b + kLanes);
  NIBBLE_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    const VF ai = hn::Set(df, a[i]);
    s[i][0] = E::multiply_add(ai, b0, s[i][0]);
    s[i][1] = E::multiply_add(ai, b1, s[i][1]);
  }
}

// `steps` of K; a [steps][kStep], b [steps][kCols]. Meanwhile fetches the steps / 2 cache lines
// from `ahead` on.
template <class E>
HWY_INLINE void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t steps,
                         const float* ahead, Sums& s) {
  NIBBLE_UNROLL(16)
  for (int i = 0; i < kRows; ++i) s[i][0] = s[i][1] = hn::Zero(DF());
  int64_t k = 0;
  // Two at a time: counters and branches compete with the multiply-adds for ports.
  for (; k + 2 <= steps; k += 2, a += 2 * kStep, b += 2 * kCols, ahead += 16) {
    __builtin_prefetch(ahead, 0, 2);
    multiply_step<E>(a, b, s);
    multiply_step<E>(a + kStep, b + kCols, s);
  }
  if (k < steps) multiply_step<E>(a, b, s);
}

enum class Chunk { first, later };

// One chunk of K for one tile of sums [kRows][kCols].
template <class E>
HWY_NOINLINE void add_tile(const float* a, const float* b, int64_t steps, const float* ahead,
                           float* tile, Chunk chunk) {
  const DF df;
  Sums s;
  multiply<E>(a, b, steps, ahead, s);
  if (chunk == Chunk::first) {
    NIBBLE_UNROLL(16)
    for (int i = 0; i < kRows; ++i) {
      hn::Store(s[i][0], df, tile + i * kCols);
      hn::Store(s[i][1], df, tile + i * kCols + kLanes);
    }
    return;
  }
  NIBBLE_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    float* t = tile + i * kCols;
    hn::Store(hn::Add(hn::Load(df, t), s[i][0]), df, t);
    hn::Store(hn::Add(hn::Load(df, t + kLanes), s[i][1]), df, t + kLanes);
  }
}

// A tile's place in c, on its way to the cache while the tile is computed.
HWY_INLINE void prefetch_c(const GemmOutput& o, int64_t row0, int64_t col0) {
  const int64_t bytes = int64_t(dtype_bytes(o.c.dtype));
  const int64_t rows = HWY_MIN(int64_t(kRows), o.c.shape[0] - row0);
  const std::byte* p = o.c.data + (row0 * o.c.row_stride + col0) * bytes;
  for (int64_t i = 0; i < rows; ++i, p += o.c.row_stride * bytes) {
    __builtin_prefetch(p, 1);
    __builtin_prefetch(p + kCols * bytes - 1, 1);
  }
}

GemmTile tile_shape() { return {kRows, kCols}; }

void pack_b(GemmElement element, const GemmFactor& b, int64_t begin, int64_t end, float* panels) {
  with_element(element, [&](auto e) {
    using E = decltype(e);
    const int64_t steps = gemm_steps(element, b.k), panel_floats = steps * kCols;
    if (!b.packed) {
      pack_dense<E, kCols>(b, begin * kCols, kCols, end - begin, panel_floats, 0, steps, panels);
      return;
    }
    for (int64_t p = begin; p < end; ++p, panels += panel_floats) {
      if (b.layout == GemmFactor::Layout::packed_outer_by_k) {
        pack_packed_outer_by_k<E, kCols>(b, p * kCols, 0, steps, panels);
      } else {
        pack_packed_k_by_outer<E, kCols>(b, p * kCols, panels);
      }
    }
  });
}

GemmScratch scratch_floats(GemmElement element, int64_t k, int64_t tile_rows, int64_t tile_cols) {
  const int64_t chunk = gemm_chunk(k), steps = gemm_steps(element, chunk);
  const int64_t tiles = k > chunk ? tile_rows * tile_cols : 1;
  const auto lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  return {lines(tile_rows * kStep * steps), lines(tiles * kTileFloats)};
}

template <class E>
HWY_INLINE void run_task_as(const GemmOutput& out, const GemmFactor& a, const GemmTask& t) {
  const int64_t row_tiles = t.row_end - t.row_begin;
  // In steps, of which chunks are whole ones.
  const int64_t all = gemm_steps(t.element, a.k), most = gemm_steps(t.element, gemm_chunk(a.k));
  const int64_t a_stride = kStep * most;
  const bool several = all > most;
  int64_t k0 = 0;
  do {
    const int64_t kc = HWY_MIN(most, all - k0);
    const Chunk chunk = k0 == 0 ? Chunk::first : Chunk::later;
    const bool last = k0 + kc >= all;
    pack_dense<E, kStep>(a, t.row_begin * kRows, kRows, row_tiles, a_stride, k0, kc, t.a_panels);
    float* tile = t.tiles;
    for (int64_t j = t.col_begin; j < t.col_end; ++j) {
      const float* panel = t.panels + ((j - t.first_panel) * all + k0) * kCols;
      for (int64_t i = 0; i < row_tiles; ++i) {
        if (last) prefetch_c(out, (t.row_begin + i) * kRows, j * kCols);
        // The next panel of B comes from afar; a few row tiles are enough to fetch it.
        const float* ahead = panel + (j + 1 < t.col_end ? all * kCols : 0) + i * kc / 2 * 16;
        if (i * kc / 2 * 16 >= kc * kCols) ahead = panel;
        add_tile<E>(t.a_panels + i * a_stride, panel, kc, ahead, tile, chunk);
        if (last) write_sums(out, tile, kRows, (t.row_begin + i) * kRows, j * kCols);
        if (several) tile += kTileFloats;
      }
    }
    k0 += kc;
  } while (k0 < all);
}

void run_task(const GemmOutput& out, const GemmFactor& a, const GemmTask& t) {
  with_element(t.element, [&](auto e) { run_task_as<decltype(e)>(out, a, t); });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(tile_shape);
HWY_EXPORT(pack_b);
HWY_EXPORT(scratch_floats);
HWY_EXPORT(run_task);

GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile_shape)(); }
void gemm_pack_b(GemmElement element, const GemmFactor& b, int64_t begin, int64_t end,
                 float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_b)(element, b, begin, end, panels);
}
GemmScratch gemm_scratch(GemmElement element, int64_t k, int64_t tile_rows, int64_t tile_cols) {
  return HWY_DYNAMIC_DISPATCH(scratch_floats)(element, k, tile_rows, tile_cols);
}
void gemm_task(const GemmOutput& out, const GemmFactor& a, const GemmTask& task) {
  HWY_DYNAMIC_DISPATCH(run_task)(out, a, task);
}

}  // namespace nibble::cpu
#endif
