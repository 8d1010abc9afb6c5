// SPDX-License-Identifier: MIT
// The inner kernel of the matrix product and what happens to its results.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/gemm_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/kernels/gemm_pack-inl.h"
#include "core/rng.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// A tile's sums, two vectors of B and one element of A fill the registers.
constexpr int kRows = HWY_TARGET == HWY_AVX3   ? 14
                      : HWY_TARGET == HWY_AVX2 ? 6
                      : HWY_TARGET == HWY_NEON ? 8
                                               : 4;
constexpr int kCols = 2 * kLanes;
constexpr int kTileFloats = kRows * kCols;

struct Sums {
  VF v[kRows][2];
};

// `steps` of K; a [steps][kRows], b [steps][kCols].
HWY_INLINE void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t steps,
                         Sums& s) {
  const DF df;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) s.v[i][0] = s.v[i][1] = hn::Zero(df);
  for (int64_t k = 0; k < steps; ++k, a += kRows, b += kCols) {
    const VF b0 = hn::Load(df, b), b1 = hn::Load(df, b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const VF ai = hn::Set(df, a[i]);
      s.v[i][0] = hn::MulAdd(ai, b0, s.v[i][0]);
      s.v[i][1] = hn::MulAdd(ai, b1, s.v[i][1]);
    }
  }
}

enum class Chunk { first, later };

// One chunk of K for one tile of sums [kRows][kCols].
HWY_NOINLINE void plain_tile(const float* a, const float* b, int64_t steps, float* tile,
                             Chunk chunk) {
  const DF df;
  Sums s;
  multiply(a, b, steps, s);
  if (chunk == Chunk::first) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      hn::Store(s.v[i][0], df, tile + i * kCols);
      hn::Store(s.v[i][1], df, tile + i * kCols + kLanes);
    }
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    float* t = tile + i * kCols;
    hn::Store(hn::Add(hn::Load(df, t), s.v[i][0]), df, t);
    hn::Store(hn::Add(hn::Load(df, t + kLanes), s.v[i][1]), df, t + kLanes);
  }
}

// The same with b in blocks of 16 steps that have scales of their own.
HWY_NOINLINE void scaled_tile(const float* a, const float* b, int64_t steps, float* tile,
                              Chunk chunk) {
  const DF df;
  if (chunk == Chunk::first) std::memset(tile, 0, kTileFloats * sizeof(float));
  for (int64_t k = 0; k < steps; k += 16, a += 16 * kRows, b += 17 * kCols) {
    Sums s;
    multiply(a, b, 16, s);
    const VF s0 = hn::Load(df, b + 16 * kCols), s1 = hn::Load(df, b + 16 * kCols + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      float* t = tile + i * kCols;
      hn::Store(hn::MulAdd(s.v[i][0], s0, hn::Load(df, t)), df, t);
      hn::Store(hn::MulAdd(s.v[i][1], s1, hn::Load(df, t + kLanes)), df, t + kLanes);
    }
  }
}

// bits: one word per lane, of which the low half counts.
HWY_INLINE void store_stochastic(VF v, const uint32_t* bits, bf16_t* out, int64_t n) {
  const DU du;
  const VU u = hn::BitCast(du, v);
  const VU r = hn::ShiftRight<16>(hn::Add(u, hn::And(hn::LoadU(du, bits), hn::Set(du, 0xffffu))));
  const VU nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
  const VU h = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, r);
  alignas(64) uint16_t buffer[kLanes];
  hn::StoreU(hn::DemoteTo(D16(), hn::BitCast(DI(), h)), D16(), buffer);
  std::memcpy(out, buffer, size_t(n) * sizeof(bf16_t));
}

// The rounding bits of kCols elements of a row, from element `first` of c on.
HWY_INLINE const uint32_t* rounding_bits(const GemmOutput& o, uint64_t first, uint32_t* words) {
  for (uint64_t i = 0; i <= kCols / 4; ++i) {
    const auto w = philox(o.seed, o.stream, first / 4 + i);
    std::memcpy(words + 4 * i, w.data(), sizeof w);
  }
  return words + first % 4;
}

template <class T>
HWY_NOINLINE void write_tile_as(const GemmOutput& o, const float* tile, int64_t row0,
                                int64_t col0) {
  const int64_t rows = HWY_MIN(int64_t(kRows), o.c.shape[0] - row0);
  const bool add = o.accumulate == Accumulate::yes;
  const bool random = add && o.rounding == GemmOutput::Rounding::stochastic;
  for (int64_t i = 0; i < rows; ++i, tile += kCols) {
    T* out = row<T>(o.c, row0 + i) + col0;
    alignas(64) uint32_t words[kCols + 4];
    const uint32_t* bits = nullptr;
    if (random) {
      bits = rounding_bits(o, uint64_t((row0 + i) * o.c.shape[1] + col0), words);
    }
    for (int v = 0; v < 2; ++v) {
      const int64_t col = v * kLanes;
      const int64_t n = HWY_MIN(int64_t(kLanes), o.c.shape[1] - col0 - col);
      if (n <= 0) break;
      const bool whole = n == kLanes;
      VF x = load(tile + col);
      if (o.column_scale) {
        const float* scale = o.column_scale + col0 + col;
        x = hn::Mul(x, whole ? load(scale) : load_tail(scale, n));
      }
      if (add) x = hn::Add(whole ? load(out + col) : load_tail(out + col, n), x);
      if constexpr (std::is_same_v<T, bf16_t>) {
        if (random) {
          store_stochastic(x, bits + col, out + col, n);
          continue;
        }
      }
      if (whole) {
        store(x, out + col);
      } else {
        store_tail(x, out + col, n);
      }
    }
  }
}
HWY_INLINE void write_tile(const GemmOutput& o, const float* tile, int64_t row0, int64_t col0) {
  with_type(o.c.dtype, [&](auto* t) {
    write_tile_as<std::remove_pointer_t<decltype(t)>>(o, tile, row0, col0);
  });
}

bool has_scales(const GemmFactor& b) { return b.layout == GemmFactor::Layout::packed_outer_by_k; }
int64_t panel_steps(const GemmFactor& b, int64_t k) { return has_scales(b) ? k / 16 * 17 : k; }

GemmTile tile_shape() { return {kRows, kCols}; }
int64_t panel_floats(const GemmFactor& b) { return panel_steps(b, b.k) * kCols; }

void pack_b(const GemmFactor& b, int64_t begin, int64_t end, float* panels) {
  for (int64_t p = begin; p < end; ++p, panels += panel_floats(b)) {
    const int64_t outer0 = p * kCols;
    if (has_scales(b)) {
      pack_packed_outer_by_k<kCols>(b, outer0, panels);
    } else if (b.layout == GemmFactor::Layout::packed_k_by_outer) {
      pack_packed_k_by_outer<kCols>(b, outer0, panels);
    } else {
      pack_dense<kCols>(b, outer0, 0, b.k, panels);
    }
  }
}

GemmScratch scratch_floats(const GemmFactor& a, int64_t tile_rows, int64_t tile_cols) {
  const int64_t tiles = a.k > kGemmChunk ? tile_rows * tile_cols : 1;
  const int64_t panels = tile_rows * kRows * HWY_MIN(kGemmChunk, a.k) + kPanelSlack;
  return {(panels + 15) / 16 * 16, (tiles * kTileFloats + 15) / 16 * 16};
}

void run_task(const GemmOutput& out, const GemmFactor& a, const GemmFactor& b, const GemmTask& t) {
  const int64_t row_tiles = t.row_end - t.row_begin;
  const bool scaled = has_scales(b), several = a.k > kGemmChunk;
  int64_t k0 = 0;
  do {
    const int64_t kc = HWY_MIN(kGemmChunk, a.k - k0);
    const Chunk chunk = k0 == 0 ? Chunk::first : Chunk::later;
    const bool last = k0 + kc >= a.k;
    for (int64_t i = 0; i < row_tiles; ++i) {
      pack_dense<kRows>(a, (t.row_begin + i) * kRows, k0, kc, t.a_panels + i * kRows * kc);
    }
    float* tile = t.tiles;
    for (int64_t j = t.col_begin; j < t.col_end; ++j) {
      const float* panel =
          t.panels + (j - t.first_panel) * panel_floats(b) + panel_steps(b, k0) * kCols;
      for (int64_t i = 0; i < row_tiles; ++i) {
        const float* rows = t.a_panels + i * kRows * kc;
        if (scaled) {
          scaled_tile(rows, panel, kc, tile, chunk);
        } else {
          plain_tile(rows, panel, kc, tile, chunk);
        }
        if (last) write_tile(out, tile, (t.row_begin + i) * kRows, j * kCols);
        if (several) tile += kTileFloats;
      }
    }
    k0 += kc;
  } while (k0 < a.k);
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(tile_shape);
HWY_EXPORT(panel_floats);
HWY_EXPORT(pack_b);
HWY_EXPORT(scratch_floats);
HWY_EXPORT(run_task);

GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile_shape)(); }
int64_t gemm_panel_floats(const GemmFactor& b) { return HWY_DYNAMIC_DISPATCH(panel_floats)(b); }
void gemm_pack_b(const GemmFactor& b, int64_t begin, int64_t end, float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_b)(b, begin, end, panels);
}
GemmScratch gemm_scratch(const GemmFactor& a, int64_t tile_rows, int64_t tile_cols) {
  return HWY_DYNAMIC_DISPATCH(scratch_floats)(a, tile_rows, tile_cols);
}
void gemm_task(const GemmOutput& out, const GemmFactor& a, const GemmFactor& b,
               const GemmTask& task) {
  HWY_DYNAMIC_DISPATCH(run_task)(out, a, b, task);
}

}  // namespace nibble::cpu
#endif
