// SPDX-License-Identifier: MIT
// Panels of a matrix product: P outer elements wide, K long, [k][P], zero beyond the outer end.
// Compiled once per target.
#if defined(NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#undef NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#else
#define NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#endif

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// Floats past the end of a panel that packing may overwrite: vectors are stored whole.
constexpr int64_t kPanelSlack = 64 / 4;

// Outer elements contiguous: rows of P floats. Stores run over into the next row, which comes next.
template <int P, class T>
HWY_NOINLINE void pack_k_by_outer(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc,
                                  float* panel) {
  constexpr int kVectors = (P + kLanes - 1) / kLanes;
  const int64_t count = HWY_MIN(int64_t(P), f.outer - outer0);
  const bool whole = outer0 + kVectors * kLanes <= f.outer;
  alignas(64) T buffer[kVectors * kLanes] = {};
  for (int64_t k = 0; k < kc; ++k, panel += P) {
    const T* in = row<T>(f.dense, k0 + k) + outer0;
    if (!whole) {
      std::memcpy(buffer, in, size_t(count) * sizeof(T));
      in = buffer;
    }
    const VF scale = hn::Set(DF(), f.k_scale ? f.k_scale[k0 + k] : 1.0f);
    for (int v = 0; v < kVectors; ++v) {
      store(hn::Mul(load(in + v * kLanes), scale), panel + v * kLanes);
    }
  }
}

// K contiguous: four outer rows at a time, transposed in 128-bit blocks. The last four come first
// because they may run over into the next k.
template <int P, class T>
HWY_NOINLINE void pack_outer_by_k(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc,
                                  float* panel) {
  const DF df;
  const hn::RepartitionToWide<DF> wide;
  for (int o = (P - 1) / 4 * 4; o >= 0; o -= 4) {
    for (int64_t k = 0; k < kc; k += kLanes) {
      const int64_t steps = HWY_MIN(int64_t(kLanes), kc - k);
      VF v[4];
      for (int i = 0; i < 4; ++i) {
        const int64_t r = outer0 + o + i;
        if (r >= f.outer || o + i >= P) {
          v[i] = hn::Zero(df);
        } else {
          const T* in = row<T>(f.dense, r) + k0 + k;
          v[i] = steps == kLanes ? load(in) : load_tail(in, steps);
        }
      }
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(df, v[0], v[1]));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(df, v[0], v[1]));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(df, v[2], v[3]));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(df, v[2], v[3]));
      // Block b of buffer[j] is step 4 b + j.
      alignas(64) float buffer[4 * kLanes];
      store(hn::BitCast(df, hn::InterleaveLower(wide, low01, low23)), buffer);
      store(hn::BitCast(df, hn::InterleaveUpper(wide, low01, low23)), buffer + kLanes);
      store(hn::BitCast(df, hn::InterleaveLower(wide, high01, high23)), buffer + 2 * kLanes);
      store(hn::BitCast(df, hn::InterleaveUpper(wide, high01, high23)), buffer + 3 * kLanes);
      float* out = panel + k * P + o;
      for (int64_t s = 0; s < steps; ++s, out += P) {
        std::memcpy(out, buffer + s % 4 * kLanes + s / 4 * 4, 16);
      }
    }
  }
}

template <int P>
void pack_dense(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc, float* panel) {
  with_type(f.dense.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (f.layout == GemmFactor::Layout::k_by_outer) {
      pack_k_by_outer<P, T>(f, outer0, k0, kc, panel);
    } else {
      pack_outer_by_k<P, T>(f, outer0, k0, kc, panel);
    }
  });
}

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
template <int P>
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
    const int64_t rows = HWY_MIN(kTileRows, f.k - k0);
    for (int64_t r = 0; r < rows; ++r, panel += P) {
      for (int v = 0; v < P / kLanes; ++v) {
        const VF code =
            hn::ConvertTo(df, hn::PromoteTo(DI(), hn::LoadU(d8, codes + r * P + v * kLanes)));
        VF w = hn::Mul(code, hn::Set(df, scales[v * kLanes / 16][r]));  // exact
        if (f.k_scale) w = hn::Mul(w, hn::Set(df, f.k_scale[k0 + r]));
        store(w, panel + v * kLanes);
      }
    }
  }
}

using DB = hn::Repartition<uint8_t, DI>;

// Byte j of each 32-bit lane as a float.
template <int j>
HWY_INLINE VF signed_byte(hn::Vec<DB> v) {
  const DI di;
  VI i = hn::BitCast(di, v);
  if constexpr (j < 3) i = hn::ShiftLeft<24 - 8 * j>(i);
  return hn::ConvertTo(DF(), hn::ShiftRight<24>(i));
}

// NVFP4 with K along its columns: per block of 16 columns the doubled codes [16][P], then the
// scales [P] that go with them.
template <int P>
HWY_NOINLINE void pack_packed_outer_by_k(const GemmFactor& f, int64_t outer0, float* panel) {
  const DF df;
  const DB d8;
  const auto table = hn::LoadDup128(d8, kDoubledCodes);
  const auto mask = hn::Set(d8, uint8_t(15));
  const int64_t strip_bytes = tiles_across(f.k) * kTileBytes;
  for (int64_t b = 0; b < f.k / 16; ++b, panel += 17 * P) {
    for (int v = 0; v < P / kLanes; ++v) {
      float* out = panel + v * kLanes;
      const int64_t row0 = outer0 + v * kLanes;
      if (row0 >= f.outer) {
        for (int i = 0; i <= 16; ++i) store(hn::Zero(df), out + i * P);
        continue;
      }
      const uint8_t* tile = f.packed + row0 / kTileRows * strip_bytes + b / 4 * kTileBytes;
      const int64_t in_strip = row0 % kTileRows;
      for (int h = 0; h < 2; ++h, out += 8 * P) {
        const auto c = hn::LoadU(d8, tile + 128 * (b % 4) + 64 * h + 4 * in_strip);
        const auto shifted =
            hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::Repartition<uint16_t, DI>(), c)));
        const auto low = hn::TableLookupBytes(table, hn::And(c, mask));
        const auto high = hn::TableLookupBytes(table, hn::And(shifted, mask));
        store(signed_byte<0>(low), out);
        store(signed_byte<1>(low), out + P);
        store(signed_byte<2>(low), out + 2 * P);
        store(signed_byte<3>(low), out + 3 * P);
        store(signed_byte<0>(high), out + 4 * P);
        store(signed_byte<1>(high), out + 5 * P);
        store(signed_byte<2>(high), out + 6 * P);
        store(signed_byte<3>(high), out + 7 * P);
      }
      const VF s = decode_scales(tile + kTileCodeBytes + 16 * (b % 4) + in_strip);
      store(hn::Mul(s, hn::Set(df, 128.0f)), out);
    }
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
