// SPDX-License-Identifier: MIT
// Panels of a matrix product: P outer elements wide (whole vectors), K long, [step][P], zero beyond
// the outer end. k0 and kc count steps, of E::kDepth elements of K. Compiled once per target.
#if defined(NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#undef NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#else
#define NIBBLE_CPU_KERNELS_GEMM_PACK_INL_H_
#endif

#include "backends/cpu/kernels/gemm_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// Outer elements contiguous: rows of P floats.
template <int P, class T>
HWY_NOINLINE void pack_k_by_outer(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc,
                                  float* panel) {
  const bool whole = outer0 + P <= f.outer;
  alignas(64) T buffer[P] = {};
  for (int64_t k = 0; k < kc; ++k, panel += P) {
    const T* in = row<T>(f.dense, k0 + k) + outer0;
    if (!whole) {
      std::memcpy(buffer, in, size_t(f.outer - outer0) * sizeof(T));
      in = buffer;
    }
    const VF scale = hn::Set(DF(), f.k_scale ? f.k_scale[k0 + k] : 1.0f);
    for (int v = 0; v < P; v += kLanes) {
      hn::Store(hn::Mul(load(in + v), scale), DF(), panel + v);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// The same in pairs: two rows become one.
template <int P>
HWY_NOINLINE void pack_pairs_k_by_outer(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc,
                                        float* panel) {
  const auto* data = reinterpret_cast<const uint16_t*>(f.dense.data) + outer0;
  const bool whole = outer0 + P <= f.outer;
  alignas(64) uint16_t buffers[2][P] = {};
  for (int64_t k = 2 * k0; k < 2 * (k0 + kc); k += 2, panel += P) {
    const uint16_t* in[2];
    for (int i = 0; i < 2; ++i) {
      in[i] = data + (k + i) * f.dense.row_stride;
      if (whole && k + i < f.k) continue;
      // Past the end of an odd K is zero.
      const int64_t n = k + i < f.k ? HWY_MIN(int64_t(P), f.outer - outer0) : 0;
      std::memset(buffers[i], 0, sizeof(buffers[i]));
      if (n > 0) std::memcpy(buffers[i], in[i], size_t(n) * sizeof(uint16_t));
      in[i] = buffers[i];
    }
    for (int v = 0; v < P; v += kLanes) {
      hn::Store(Pairs::join(hn::LoadU(D16(), in[0] + v), hn::LoadU(D16(), in[1] + v)), DF(),
                panel + v);
    }
  }
}
#endif

// v[i] = row i becomes v[j] = column j, kLanes by kLanes.
HWY_INLINE void transpose(VF (&v)[kLanes]) {
  const DF df;
  const hn::RepartitionToWide<DF> wide;
  constexpr int kGroups = kLanes / 4;
  // Within 128-bit blocks: block b of v[4 g + j] is then column 4 b + j of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    VF* r = v + 4 * g;
    const auto low01 = hn::BitCast(wide, hn::InterleaveLower(df, r[0], r[1]));
    const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(df, r[0], r[1]));
    const auto low23 = hn::BitCast(wide, hn::InterleaveLower(df, r[2], r[3]));
    const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(df, r[2], r[3]));
    r[0] = hn::BitCast(df, hn::InterleaveLower(wide, low01, low23));
    r[1] = hn::BitCast(df, hn::InterleaveUpper(wide, low01, low23));
    r[2] = hn::BitCast(df, hn::InterleaveLower(wide, high01, high23));
    r[3] = hn::BitCast(df, hn::InterleaveUpper(wide, high01, high23));
  }
  // Blocks among the groups.
#if HWY_TARGET == HWY_AVX3
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const VF low01 = hn::ConcatLowerLower(df, v[4 + j], v[j]);
    const VF high01 = hn::ConcatUpperUpper(df, v[4 + j], v[j]);
    const VF low23 = hn::ConcatLowerLower(df, v[12 + j], v[8 + j]);
    const VF high23 = hn::ConcatUpperUpper(df, v[12 + j], v[8 + j]);
    v[j] = VF{_mm512_shuffle_f32x4(low01.raw, low23.raw, 0x88)};
    v[4 + j] = VF{_mm512_shuffle_f32x4(low01.raw, low23.raw, 0xdd)};
    v[8 + j] = VF{_mm512_shuffle_f32x4(high01.raw, high23.raw, 0x88)};
    v[12 + j] = VF{_mm512_shuffle_f32x4(high01.raw, high23.raw, 0xdd)};
  }
#elif HWY_TARGET == HWY_AVX2
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const VF low = hn::ConcatLowerLower(df, v[4 + j], v[j]);
    v[4 + j] = hn::ConcatUpperUpper(df, v[4 + j], v[j]);
    v[j] = low;
  }
#else
  static_assert(kGroups == 1);
#endif
}

// K contiguous: kLanes outer rows at a time.
template <class E, int P, class T>
HWY_NOINLINE void pack_outer_by_k(const GemmFactor& f, int64_t outer0, int64_t k0, int64_t kc,
                                  float* panel) {
  const DF df;
  for (int o = 0; o < P; o += kLanes) {
    const int64_t rows = HWY_MIN(int64_t(kLanes), f.outer - outer0 - o);
    for (int64_t k = 0; k < kc; k += kLanes) {
      const int64_t steps = HWY_MIN(int64_t(kLanes), kc - k);
      float* out = panel + k * P + o;
      VF v[kLanes];
      if (steps == kLanes && (k0 + k + kLanes) * E::kDepth <= f.k) {
        const T* in = row<T>(f.dense, outer0 + o) + (k0 + k) * E::kDepth;
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          v[i] = i < rows ? E::load_steps(in + i * f.dense.row_stride) : hn::Zero(df);
        }
        transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) hn::Store(v[i], df, out + i * P);
        continue;
      }
      const int64_t first = (k0 + k) * E::kDepth, n = HWY_MIN(steps * E::kDepth, f.k - first);
      for (int64_t i = 0; i < kLanes; ++i) {
        v[i] = i < rows ? E::load_steps_tail(row<T>(f.dense, outer0 + o + i) + first, n)
                        : hn::Zero(df);
      }
      transpose(v);
      for (int64_t i = 0; i < steps; ++i) hn::Store(v[i], df, out + i * P);
    }
  }
}

// Panels side by side, in short pieces of K: rows of the source are read in order where they are
// what is contiguous, and what is written in pieces stays in the first-level cache.
// Panel p begins `width` <= P outer elements after the one before.
template <class E, int P>
void pack_dense(const GemmFactor& f, int64_t outer0, int64_t width, int64_t panel_count,
                int64_t panel_stride, int64_t k0, int64_t kc, float* panels) {
  const bool rows_are_k = f.layout == GemmFactor::Layout::k_by_outer;
  const int64_t piece = rows_are_k ? 8 : 64;
  // pack(outer, first step, steps, panel)
  const auto in_pieces = [&](auto pack) {
    for (int64_t k = 0; k < kc; k += piece) {
      const int64_t steps = HWY_MIN(piece, kc - k);
      for (int64_t p = 0; p < panel_count; ++p) {
        pack(outer0 + p * width, k0 + k, steps, panels + p * panel_stride + k * P);
      }
    }
  };
  const auto pack_as = [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    in_pieces([&](int64_t outer, int64_t k, int64_t steps, float* panel) {
      if (!rows_are_k) {
        pack_outer_by_k<E, P, T>(f, outer, k, steps, panel);
      } else if constexpr (E::kDepth == 1) {
        pack_k_by_outer<P, T>(f, outer, k, steps, panel);
      } else {
        pack_pairs_k_by_outer<P>(f, outer, k, steps, panel);
      }
    });
  };
  if constexpr (E::kDepth == 1) {
    with_type(f.dense.dtype, pack_as);
  } else {
    pack_as(static_cast<bf16_t*>(nullptr));
  }
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
