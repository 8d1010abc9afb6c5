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
// One step of K in a panel of A: whole vectors, of which kRows elements are used.
constexpr int kStep = (kRows + kLanes - 1) / kLanes * kLanes;

struct Sums {
  VF v[kRows][2];
};

HWY_INLINE void multiply_step(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Sums& s) {
  const DF df;
  const VF b0 = hn::Load(df, b), b1 = hn::Load(df, b + kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const VF ai = hn::Set(df, a[i]);
    s.v[i][0] = hn::MulAdd(ai, b0, s.v[i][0]);
    s.v[i][1] = hn::MulAdd(ai, b1, s.v[i][1]);
  }
}

// `steps` of K; a [steps][kStep], b [steps][kCols]. Meanwhile fetches the steps / 2 cache lines
// from `ahead` on.
HWY_INLINE void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t steps,
                         const float* ahead, Sums& s) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) s.v[i][0] = s.v[i][1] = hn::Zero(DF());
  int64_t k = 0;
  // Two at a time: counters and branches compete with the multiply-adds for ports.
  for (; k + 2 <= steps; k += 2, a += 2 * kStep, b += 2 * kCols, ahead += 16) {
    __builtin_prefetch(ahead, 0, 2);
    multiply_step(a, b, s);
    multiply_step(a + kStep, b + kCols, s);
  }
  if (k < steps) multiply_step(a, b, s);
}

enum class Chunk { first, later };

// One chunk of K for one tile of sums [kRows][kCols].
HWY_NOINLINE void add_tile(const float* a, const float* b, int64_t steps, const float* ahead,
                           float* tile, Chunk chunk) {
  const DF df;
  Sums s;
  multiply(a, b, steps, ahead, s);
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

// Sums [rows][kCols] into c at (row0, col0), as far as c goes.
template <class T>
HWY_NOINLINE void write_sums_as(const GemmOutput& o, const float* tile, int64_t rows, int64_t row0,
                                int64_t col0) {
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
HWY_INLINE void write_sums(const GemmOutput& o, const float* sums, int64_t rows, int64_t row0,
                           int64_t col0) {
  with_type(o.c.dtype, [&](auto* t) {
    write_sums_as<std::remove_pointer_t<decltype(t)>>(o, sums, HWY_MIN(rows, o.c.shape[0] - row0),
                                                      row0, col0);
  });
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

void pack_b(const GemmFactor& b, int64_t begin, int64_t end, float* panels) {
  const int64_t panel_floats = b.k * kCols;
  if (!b.packed) {
    pack_dense<kCols>(b, begin * kCols, kCols, end - begin, panel_floats, 0, b.k, panels);
    return;
  }
  for (int64_t p = begin; p < end; ++p, panels += panel_floats) {
    if (b.layout == GemmFactor::Layout::packed_outer_by_k) {
      pack_packed_outer_by_k(b, p * kCols, 0, b.k, panels);
    } else {
      pack_packed_k_by_outer<kCols>(b, p * kCols, panels);
    }
  }
}

GemmScratch scratch_floats(const GemmFactor& a, int64_t tile_rows, int64_t tile_cols) {
  const int64_t chunk = gemm_chunk(a.k);
  const int64_t tiles = a.k > chunk ? tile_rows * tile_cols : 1;
  const auto lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  return {lines(tile_rows * kStep * chunk), lines(tiles * kTileFloats)};
}

void run_task(const GemmOutput& out, const GemmFactor& a, const GemmTask& t) {
  const int64_t row_tiles = t.row_end - t.row_begin;
  const int64_t chunk_steps = gemm_chunk(a.k), a_stride = kStep * chunk_steps;
  const bool several = a.k > chunk_steps;
  int64_t k0 = 0;
  do {
    const int64_t kc = HWY_MIN(chunk_steps, a.k - k0);
    const Chunk chunk = k0 == 0 ? Chunk::first : Chunk::later;
    const bool last = k0 + kc >= a.k;
    pack_dense<kStep>(a, t.row_begin * kRows, kRows, row_tiles, a_stride, k0, kc, t.a_panels);
    float* tile = t.tiles;
    for (int64_t j = t.col_begin; j < t.col_end; ++j) {
      const float* panel = t.panels + ((j - t.first_panel) * a.k + k0) * kCols;
      for (int64_t i = 0; i < row_tiles; ++i) {
        if (last) prefetch_c(out, (t.row_begin + i) * kRows, j * kCols);
        // The next panel of B comes from afar; a few row tiles are enough to fetch it.
        const float* ahead = panel + (j + 1 < t.col_end ? a.k * kCols : 0) + i * kc / 2 * 16;
        if (i * kc / 2 * 16 >= kc * kCols) ahead = panel;
        add_tile(t.a_panels + i * a_stride, panel, kc, ahead, tile, chunk);
        if (last) write_sums(out, tile, kRows, (t.row_begin + i) * kRows, j * kCols);
        if (several) tile += kTileFloats;
      }
    }
    k0 += kc;
  } while (k0 < a.k);
}

// --- Few rows: a panel is packed piece by piece and used at once, by one thread ---
constexpr int64_t kPiece = 64;

// R rows of x against `steps` of a panel; continues the sums [R][kCols].
template <int R>
HWY_NOINLINE void multiply_few(const float* HWY_RESTRICT x, int64_t stride,
                               const float* HWY_RESTRICT b, int64_t steps, float* sums) {
  const DF df;
  VF s[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    s[r][0] = hn::Load(df, sums + r * kCols);
    s[r][1] = hn::Load(df, sums + r * kCols + kLanes);
  }
  for (int64_t k = 0; k < steps; ++k, b += kCols) {
    const VF b0 = hn::Load(df, b), b1 = hn::Load(df, b + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VF xr = hn::Set(df, x[r * stride + k]);
      s[r][0] = hn::MulAdd(xr, b0, s[r][0]);
      s[r][1] = hn::MulAdd(xr, b1, s[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    hn::Store(s[r][0], df, sums + r * kCols);
    hn::Store(s[r][1], df, sums + r * kCols + kLanes);
  }
}

// The same straight from packed rows: cheaper while decoding is most of the work.
template <int R>
HWY_NOINLINE void multiply_packed(const FloatRows& x, const PackedRows& rows, int64_t k,
                                  int64_t steps, float* sums) {
  const DF df;
  VF s[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    s[r][0] = hn::Load(df, sums + r * kCols);
    s[r][1] = hn::Load(df, sums + r * kCols + kLanes);
  }
  for (int64_t b = k / 16; b < (k + steps) / 16; ++b) {
    const float* in = x.data + 16 * b;
    rows.decode(b, [&](int i, VF w0, VF w1) HWY_ATTR {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VF xr = hn::Set(df, in[r * x.stride + i]);
        s[r][0] = hn::MulAdd(xr, w0, s[r][0]);
        s[r][1] = hn::MulAdd(xr, w1, s[r][1]);
      }
    });
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    hn::Store(s[r][0], df, sums + r * kCols);
    hn::Store(s[r][1], df, sums + r * kCols + kLanes);
  }
}

HWY_INLINE void multiply_rows(const FloatRows& x, int64_t k, const float* piece, int64_t steps,
                              float* sums) {
  constexpr int kMany = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;
  const float* in = x.data + k;
  int64_t n = 0;
  for (; n + kMany <= x.count; n += kMany) {
    multiply_few<kMany>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
  }
  for (; n + 2 <= x.count; n += 2) {
    multiply_few<2>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
  }
  if (n < x.count) multiply_few<1>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
}

GemmScratch few_scratch_floats(int64_t rows) { return {kPiece * kCols, 2 * rows * kCols}; }

// Steps [k0, k_end) of panel p.
void multiply_chunk(const FloatRows& x, const GemmFactor& b, int64_t p, int64_t k0, int64_t k_end,
                    float* piece, float* sums) {
  if (b.packed && x.count <= 4) {
    const PackedRows rows(b, p * kCols);
    const int64_t steps = k_end - k0;
    if (x.count == 1) multiply_packed<1>(x, rows, k0, steps, sums);
    if (x.count == 2) multiply_packed<2>(x, rows, k0, steps, sums);
    if (x.count == 3) multiply_packed<3>(x, rows, k0, steps, sums);
    if (x.count == 4) multiply_packed<4>(x, rows, k0, steps, sums);
    return;
  }
  for (int64_t k = k0; k < k_end; k += kPiece) {
    const int64_t steps = HWY_MIN(kPiece, k_end - k);
    if (b.packed) {
      pack_packed_outer_by_k(b, p * kCols, k, steps, piece);
    } else {
      pack_dense<kCols>(b, p * kCols, kCols, 1, 0, k, steps, piece);
    }
    multiply_rows(x, k, piece, steps, sums);
  }
}

void run_few(const GemmOutput& out, const FloatRows& x, const GemmFactor& b, int64_t begin,
             int64_t end, float* scratch) {
  const DF df;
  float* piece = scratch;
  float* sums = piece + kPiece * kCols;
  float* total = sums + x.count * kCols;
  const int64_t chunk = gemm_chunk(b.k), count = x.count * kCols;
  for (int64_t p = begin; p < end; ++p) {
    for (int64_t k0 = 0; k0 < b.k; k0 += chunk) {
      std::memset(sums, 0, size_t(count) * sizeof(float));
      multiply_chunk(x, b, p, k0, HWY_MIN(b.k, k0 + chunk), piece, sums);
      for (int64_t i = 0; i < count; i += kLanes) {
        const VF s = hn::Load(df, sums + i);
        hn::Store(k0 == 0 ? s : hn::Add(hn::Load(df, total + i), s), df, total + i);
      }
    }
    write_sums(out, total, x.count, 0, p * kCols);
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(tile_shape);
HWY_EXPORT(pack_b);
HWY_EXPORT(scratch_floats);
HWY_EXPORT(run_task);
HWY_EXPORT(few_scratch_floats);
HWY_EXPORT(run_few);

GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile_shape)(); }
void gemm_pack_b(const GemmFactor& b, int64_t begin, int64_t end, float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_b)(b, begin, end, panels);
}
GemmScratch gemm_scratch(const GemmFactor& a, int64_t tile_rows, int64_t tile_cols) {
  return HWY_DYNAMIC_DISPATCH(scratch_floats)(a, tile_rows, tile_cols);
}
void gemm_task(const GemmOutput& out, const GemmFactor& a, const GemmTask& task) {
  HWY_DYNAMIC_DISPATCH(run_task)(out, a, task);
}
GemmScratch gemm_few_scratch(int64_t rows) {
  return HWY_DYNAMIC_DISPATCH(few_scratch_floats)(rows);
}
void gemm_few_panels(const GemmOutput& out, const FloatRows& x, const GemmFactor& b, int64_t begin,
                     int64_t end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_few)(out, x, b, begin, end, scratch);
}

}  // namespace nibble::cpu
#endif
