// SPDX-License-Identifier: MIT
// Panels (kernels/gemm_pack-inl.h) of packed NVFP4 weights. Compiled once per target.
#if defined(NIBBLE_CPU_KERNELS_GEMM_PACK_NVFP4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_GEMM_PACK_NVFP4_INL_H_
#undef NIBBLE_CPU_KERNELS_GEMM_PACK_NVFP4_INL_H_
#else
#define NIBBLE_CPU_KERNELS_GEMM_PACK_NVFP4_INL_H_
#endif

#include "backends/cpu/kernels/gemm_element-inl.h"
#include "backends/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// 2 * e2m1 as signed bytes.
alignas(16) constexpr uint8_t kDoubledCodes[16] = {0, 1,    2,    3,    4,    6,    8,    12,
                                                   0, 0xff, 0xfe, 0xfd, 0xfc, 0xfa, 0xf8, 0xf4};

// Eight columns of a tile as doubled codes: half a block (64 bytes) into 16 rows `stride` apart.
HWY_INLINE void decode_half(const uint8_t* half, int8_t* out, int64_t stride) {
  const hn::Full128<uint8_t> d8;
  const hn::Full128<uint16_t> d16;
  const hn::Full128<uint32_t> d32;
  const auto table = hn::Load(d8, kDoubledCodes);
  const auto mask = hn::Set(d8, uint8_t(15));
  for (int q = 0; q < 4; ++q) {
    const auto c = hn::LoadU(d8, half + 16 * q);
    const auto shifted = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, c)));
    const auto low = hn::BitCast(d32, hn::TableLookupBytes(table, hn::And(c, mask)));
    const auto high = hn::BitCast(d32, hn::TableLookupBytes(table, hn::And(shifted, mask)));
    alignas(16) uint32_t rows[8];
    hn::Store(hn::InterleaveLower(d32, low, high), d32, rows);
    hn::Store(hn::InterleaveUpper(d32, low, high), d32, rows + 4);
    for (int r = 0; r < 4; ++r) std::memcpy(out + (4 * q + r) * stride, rows + 2 * r, 8);
  }
}

// NVFP4 with K along its rows: P columns of every row, times k_scale.
template <class E, int P>
HWY_NOINLINE void pack_packed_k_by_outer(const GemmFactor& f, int64_t outer0, float* panel) {
  static_assert(P % 8 == 0 && P % kLanes == 0 && 16 % kLanes == 0);
  const DF df;
  const hn::Rebind<int8_t, DF> d8;
  const int64_t strip_bytes = tiles_across(f.outer) * kTileBytes;
  const int64_t padded = tiles_across(f.outer) * kTileCols;
  for (int64_t k0 = 0; k0 < f.k; k0 += kTileRows) {
    const uint8_t* strip = f.packed + k0 / kTileRows * strip_bytes;
    alignas(64) int8_t codes[kTileRows * P] = {};
    alignas(64) float scales[(P + 15) / 16][kTileRows] = {};
    for (int64_t i = 0; i < P && outer0 + i < padded; i += 8) {
      const int64_t col = outer0 + i;
      const uint8_t* tile = strip + col / kTileCols * kTileBytes;
      const int64_t block = col % kTileCols / 16;
      decode_half(tile + 128 * block + 64 * (col % 16 / 8), codes + i, P);
      if (i % 16 != 0) continue;
      for (int part = 0; part < kParts; ++part) {
        const VF s = decode_scales(tile + kTileCodeBytes + 16 * block + kLanes * part);
        store(hn::Mul(s, hn::Set(df, 128.0f)), scales[i / 16] + kLanes * part);
      }
    }
    // Vector v of row r of the strip; rows beyond the end are zero.
    const auto weights = [&](int64_t r, int v) HWY_ATTR {
      const VF code =
          hn::ConvertTo(df, hn::PromoteTo(DI(), hn::LoadU(d8, codes + r * P + v * kLanes)));
      return hn::Mul(code, hn::Set(df, scales[v * kLanes / 16][r]));  // exact
    };
    const int64_t rows = HWY_MIN(kTileRows, f.k - k0);
    for (int64_t r = 0; r < rows; r += E::kDepth, panel += P) {
      for (int v = 0; v < P / kLanes; ++v) {
        VF w = weights(r, v);
        if constexpr (E::kDepth == 2) {
          w = E::join(w, weights(r + 1, v));
        } else {
          if (f.k_scale) w = hn::Mul(w, hn::Set(df, f.k_scale[k0 + r]));
        }
        store(w, panel + v * kLanes);
      }
    }
  }
}

// One vector of rows of a packed weight: its codes in a tile's half block by column.
class CodeColumns {
 public:
#if HWY_TARGET == HWY_AVX3
  // A 32-bit lane holds eight codes; a permutation looks at the lowest.
  HWY_INLINE explicit CodeColumns(const uint8_t* half)
      : codes_(hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(half))) {}
  template <int column>
  HWY_INLINE VF get() const {
    alignas(64) static constexpr float kTable[16] = {0,     1,  2,  3,  4,  6,  8,  12,
                                                     -0.0f, -1, -2, -3, -4, -6, -8, -12};
    const VU index = hn::ShiftRight<8 * (column % 4) + column / 4 * 4>(codes_);
    return VF{_mm512_permutexvar_ps(index.raw, hn::Load(DF(), kTable).raw)};
  }

 private:
  VU codes_;
#else
  HWY_INLINE explicit CodeColumns(const uint8_t* half) {
    const auto table = hn::LoadDup128(DB(), kDoubledCodes);
    const auto mask = hn::Set(DB(), uint8_t(15));
    const auto c = hn::LoadU(DB(), half);
    const auto shifted =
        hn::BitCast(DB(), hn::ShiftRight<4>(hn::BitCast(hn::Repartition<uint16_t, DI>(), c)));
    codes_[0] = hn::BitCast(DI(), hn::TableLookupBytes(table, hn::And(c, mask)));
    codes_[1] = hn::BitCast(DI(), hn::TableLookupBytes(table, hn::And(shifted, mask)));
  }
  template <int column>
  HWY_INLINE VF get() const {
    VI i = codes_[column / 4];
    if constexpr (column % 4 < 3) i = hn::ShiftLeft<24 - 8 * (column % 4)>(i);
    return hn::ConvertTo(DF(), hn::ShiftRight<24>(i));
  }

 private:
  using DB = hn::Repartition<uint8_t, DI>;
  VI codes_[2];
#endif
};

// Blocks of 16 columns of 2 * kLanes rows of a packed weight; rows beyond the end are zero.
class PackedRows {
 public:
  PackedRows(const GemmFactor& f, int64_t row0) {
    const int64_t strip_bytes = tiles_across(f.k) * kTileBytes;
    for (int v = 0; v < 2; ++v) {
      const int64_t r = row0 + v * kLanes;
      inside_[v] = r < f.outer ? 128.0f : 0.0f;
      rows_[v] = r < f.outer ? r % kTileRows : 0;
      strips_[v] = f.packed + (r < f.outer ? r / kTileRows * strip_bytes : 0);
    }
  }
  // use(i, w0, w1) with step i of block `block`, i < 16 / E::kDepth.
  template <class E, class F>
  HWY_INLINE void decode(int64_t block, F use) const {
    const DF df;
    const uint8_t* codes[2];
    VF scale[2];
    for (int v = 0; v < 2; ++v) {
      const uint8_t* tile = strips_[v] + block / 4 * kTileBytes;
      codes[v] = tile + 128 * (block % 4) + 4 * rows_[v];
      scale[v] = hn::Mul(decode_scales(tile + kTileCodeBytes + 16 * (block % 4) + rows_[v]),
                         hn::Set(df, inside_[v]));
    }
    for (int h = 0; h < 2; ++h) {
      const CodeColumns c[2] = {CodeColumns(codes[0] + 64 * h), CodeColumns(codes[1] + 64 * h)};
      const auto step = [&](auto i) HWY_ATTR {
        constexpr int kStep = decltype(i)::value;
        VF w[2];
        for (int v = 0; v < 2; ++v) {
          if constexpr (E::kDepth == 1) {
            w[v] = hn::Mul(c[v].template get<kStep>(), scale[v]);  // exact
          } else {
            w[v] = E::join(hn::Mul(c[v].template get<2 * kStep>(), scale[v]),
                           hn::Mul(c[v].template get<2 * kStep + 1>(), scale[v]));
          }
        }
        use(8 / int(E::kDepth) * h + kStep, w[0], w[1]);
      };
      step(std::integral_constant<int, 0>()), step(std::integral_constant<int, 1>());
      step(std::integral_constant<int, 2>()), step(std::integral_constant<int, 3>());
      if constexpr (E::kDepth == 1) {
        step(std::integral_constant<int, 4>()), step(std::integral_constant<int, 5>());
        step(std::integral_constant<int, 6>()), step(std::integral_constant<int, 7>());
      }
    }
  }

 private:
  const uint8_t* strips_[2];
  int64_t rows_[2];
  float inside_[2];
};

// NVFP4 with K along its columns: steps [k0, k0 + kc), whole blocks of 16 columns, of P rows.
template <class E, int P>
HWY_NOINLINE void pack_packed_outer_by_k(const GemmFactor& f, int64_t outer0, int64_t k0,
                                         int64_t kc, float* panel) {
  static_assert(P == 2 * kLanes);
  constexpr int64_t kBlock = 16 / E::kDepth;
  const PackedRows rows(f, outer0);
  for (int64_t b = k0 / kBlock; b < (k0 + kc) / kBlock; ++b, panel += kBlock * P) {
    rows.decode<E>(b, [&](int i, VF w0, VF w1) HWY_ATTR {
      hn::Store(w0, DF(), panel + i * P);
      hn::Store(w1, DF(), panel + i * P + kLanes);
    });
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
