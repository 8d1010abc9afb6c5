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

// Outer elements contiguous: a step of all panels at a time, so that rows are read in order; panel
// p begins `width` <= P outer elements after the one before. The pieces of rows that a task needs
// are too short for the hardware to guess the next ones (measured: a quarter of the time).
template <class E, int P, class T>
HWY_NOINLINE void pack_k_by_outer(const GemmFactor& f, int64_t outer0, int64_t width,
                                  int64_t panel_count, int64_t panel_stride, int64_t k0, int64_t kc,
                                  float* panels) {
  constexpr int kDepth = int(E::kDepth);
  constexpr int64_t kAhead = 8;  // rows
  // Panels that end before the outer elements do.
  const int64_t left = f.outer - outer0;
  const int64_t whole = left < P ? 0 : HWY_MIN(panel_count, (left - P) / width + 1);
  alignas(64) T buffers[kDepth][P] = {};
  for (int64_t k = 0; k < kc; ++k, panels += P) {
    const int64_t first = (k0 + k) * kDepth;
    const T* rows[kDepth];
    for (int i = 0; i < kDepth; ++i) {
      rows[i] = row<T>(f.dense, first + i) + outer0;
      if (first + i + kAhead >= f.k) continue;
      const T* ahead = rows[i] + kAhead * f.dense.row_stride;
      for (int64_t at = 0; at < panel_count * width; at += 64 / int64_t(sizeof(T))) {
        __builtin_prefetch(ahead + at);
      }
    }
    const VF scale = hn::Set(DF(), f.k_scale ? f.k_scale[first] : 1.0f);
    const auto pack = [&](const T* const* in, float* panel) HWY_ATTR {
      NIBBLE_UNROLL(2)
      for (int v = 0; v < P; v += kLanes) {
        VF step;
        if constexpr (kDepth == 1) {
          step = hn::Mul(load(in[0] + v), scale);
        } else {
          step = E::load_rows(in[0] + v, in[1] + v);
        }
        hn::Store(step, DF(), panel + v);
      }
    };
    const int64_t direct = first + kDepth <= f.k ? whole : 0;
    for (int64_t p = 0; p < direct; ++p) {
      const T* in[kDepth];
      for (int i = 0; i < kDepth; ++i) in[i] = rows[i] + p * width;
      pack(in, panels + p * panel_stride);
    }
    for (int64_t p = direct; p < panel_count; ++p) {
      const T* in[kDepth];
      for (int i = 0; i < kDepth; ++i) {
        // Zero beyond the outer end, and beyond an odd K.
        const int64_t n = first + i < f.k ? HWY_MIN(int64_t(P), f.outer - outer0 - p * width) : 0;
        std::memset(buffers[i], 0, sizeof(buffers[i]));
        if (n > 0) std::memcpy(buffers[i], rows[i] + p * width, size_t(n) * sizeof(T));
        in[i] = buffers[i];
      }
      pack(in, panels + p * panel_stride);
    }
  }
}

// v[i] = row i becomes v[j] = column j, kLanes by kLanes.
HWY_INLINE void transpose(VF (&v)[kLanes]) {
  const DF df;
  const hn::RepartitionToWide<DF> wide;
  constexpr int kGroups = kLanes / 4;
  // Within 128-bit blocks: block b of v[4 g + j] is then column 4 b + j of rows 4 g .. 4 g + 3.
  NIBBLE_UNROLL(4)
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
  NIBBLE_UNROLL(4)
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
  NIBBLE_UNROLL(4)
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
        NIBBLE_UNROLL(16)
        for (int i = 0; i < kLanes; ++i) {
          v[i] = i < rows ? E::load_steps(in + i * f.dense.row_stride) : hn::Zero(df);
        }
        transpose(v);
        NIBBLE_UNROLL(16)
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

// `count` <= P rows of width `k`, `stride` apart, as one panel.
template <class E, int P, class T>
HWY_INLINE void transpose_rows(const T* rows, int64_t stride, int64_t count, int64_t k,
                               float* panel) {
  GemmFactor f{.layout = GemmFactor::Layout::outer_by_k, .outer = count, .k = k, .dense = {}};
  f.dense.data = reinterpret_cast<std::byte*>(const_cast<T*>(rows));
  f.dense.row_stride = stride;
  pack_outer_by_k<E, P, T>(f, 0, 0, (k + E::kDepth - 1) / E::kDepth, panel);
}

// One row in steps.
template <class E, class T>
HWY_INLINE void load_steps(float* to, const T* from, int64_t k) {
  constexpr int64_t kVector = kLanes * E::kDepth;
  int64_t i = 0;
  for (; i + kVector <= k; i += kVector) store(E::load_steps(from + i), to + i / E::kDepth);
  if (i < k) {
    store_tail(E::load_steps_tail(from + i, k - i), to + i / E::kDepth,
               (k - i + E::kDepth - 1) / E::kDepth);
  }
}

// Panels side by side. Panel p begins `width` <= P outer elements after the one before. Where K is
// contiguous, in short pieces of it: what is written in pieces stays in the first-level cache.
template <class E, int P>
void pack_dense(const GemmFactor& f, int64_t outer0, int64_t width, int64_t panel_count,
                int64_t panel_stride, int64_t k0, int64_t kc, float* panels) {
  const auto pack_as = [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (f.layout == GemmFactor::Layout::k_by_outer) {
      pack_k_by_outer<E, P, T>(f, outer0, width, panel_count, panel_stride, k0, kc, panels);
      return;
    }
    constexpr int64_t kPiece = 64;
    for (int64_t k = 0; k < kc; k += kPiece) {
      for (int64_t p = 0; p < panel_count; ++p) {
        pack_outer_by_k<E, P, T>(f, outer0 + p * width, k0 + k, HWY_MIN(kPiece, kc - k),
                                 panels + p * panel_stride + k * P);
      }
    }
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
