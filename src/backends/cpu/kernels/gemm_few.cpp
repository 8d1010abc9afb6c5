// SPDX-License-Identifier: MIT
// The matrix product for few rows: a panel of B is unpacked piece by piece and used at once, by one
// thread. The order of operations is that of gemm_kernels.cpp.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/gemm_few.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "backends/cpu/kernels/gemm_pack-inl.h"
#include "backends/cpu/kernels/gemm_pack_nvfp4-inl.h"
#include "backends/cpu/kernels/gemm_write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

constexpr int64_t kPiece = 64;

// R rows of x against `steps` of a panel; continues the sums [R][kCols].
template <class E, int R>
HWY_NOINLINE void multiply_few(const float* HWY_RESTRICT x, int64_t stride,
                               const float* HWY_RESTRICT b, int64_t steps, float* sums) {
  const DF df;
  VF s[R][2];
  NIBBLE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    s[r][0] = hn::Load(df, sums + r * kCols);
    s[r][1] = hn::Load(df, sums + r * kCols + kLanes);
  }
  for (int64_t k = 0; k < steps; ++k, b += kCols) {
    const VF b0 = hn::Load(df, b), b1 = hn::Load(df, b + kLanes);
    NIBBLE_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const VF xr = hn::Set(df, x[r * stride + k]);
      s[r][0] = E::multiply_add(xr, b0, s[r][0]);
      s[r][1] = E::multiply_add(xr, b1, s[r][1]);
    }
  }
  NIBBLE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    hn::Store(s[r][0], df, sums + r * kCols);
    hn::Store(s[r][1], df, sums + r * kCols + kLanes);
  }
}

// The same straight from packed rows: cheaper while decoding is most of the work.
template <class E, int R>
HWY_NOINLINE void multiply_packed(const GemmRows& x, const PackedRows& rows, int64_t k,
                                  int64_t steps, float* sums) {
  const DF df;
  VF s[R][2];
  NIBBLE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    s[r][0] = hn::Load(df, sums + r * kCols);
    s[r][1] = hn::Load(df, sums + r * kCols + kLanes);
  }
  constexpr int64_t kBlock = 16 / E::kDepth;
  for (int64_t b = k / kBlock; b < (k + steps) / kBlock; ++b) {
    const float* in = x.steps + kBlock * b;
    rows.decode<E>(b, [&](int i, VF w0, VF w1) HWY_ATTR {
      NIBBLE_UNROLL(8)
      for (int r = 0; r < R; ++r) {
        const VF xr = hn::Set(df, in[r * x.stride + i]);
        s[r][0] = E::multiply_add(xr, w0, s[r][0]);
        s[r][1] = E::multiply_add(xr, w1, s[r][1]);
      }
    });
  }
  NIBBLE_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    hn::Store(s[r][0], df, sums + r * kCols);
    hn::Store(s[r][1], df, sums + r * kCols + kLanes);
  }
}

template <class E>
HWY_INLINE void multiply_rows(const GemmRows& x, int64_t k, const float* piece, int64_t steps,
                              float* sums) {
  constexpr int kMany = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;
  const float* in = x.steps + k;
  int64_t n = 0;
  for (; n + kMany <= x.count; n += kMany) {
    multiply_few<E, kMany>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
  }
  for (; n + 2 <= x.count; n += 2) {
    multiply_few<E, 2>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
  }
  if (n < x.count) multiply_few<E, 1>(in + n * x.stride, x.stride, piece, steps, sums + n * kCols);
}

int64_t few_scratch_floats(int64_t rows) { return (kPiece + 2 * rows) * kCols; }

// Steps [k0, k_end) of panel p.
template <class E>
HWY_INLINE void multiply_chunk(const GemmRows& x, const GemmFactor& b, int64_t p, int64_t k0,
                               int64_t k_end, float* piece, float* sums) {
  if (b.packed && x.count <= 4) {
    const PackedRows rows(b, p * kCols);
    const int64_t steps = k_end - k0;
    if (x.count == 1) multiply_packed<E, 1>(x, rows, k0, steps, sums);
    if (x.count == 2) multiply_packed<E, 2>(x, rows, k0, steps, sums);
    if (x.count == 3) multiply_packed<E, 3>(x, rows, k0, steps, sums);
    if (x.count == 4) multiply_packed<E, 4>(x, rows, k0, steps, sums);
    return;
  }
  for (int64_t k = k0; k < k_end; k += kPiece) {
    const int64_t steps = HWY_MIN(kPiece, k_end - k);
    if (b.packed) {
      pack_packed_outer_by_k<E, kCols>(b, p * kCols, k, steps, piece);
    } else {
      pack_dense<E, kCols>(b, p * kCols, kCols, 1, 0, k, steps, piece);
    }
    multiply_rows<E>(x, k, piece, steps, sums);
  }
}

template <class E>
HWY_INLINE void run_few_as(const GemmOutput& out, const GemmRows& x, const GemmFactor& b,
                           int64_t begin, int64_t end, float* scratch) {
  const DF df;
  float* piece = scratch;
  float* sums = piece + kPiece * kCols;
  float* total = sums + x.count * kCols;
  // In steps, of which chunks are whole ones.
  const int64_t all = gemm_steps(x.element, b.k), chunk = gemm_steps(x.element, gemm_chunk(b.k));
  const int64_t count = x.count * kCols;
  if (b.k == 0) std::memset(total, 0, size_t(count) * sizeof(float));
  for (int64_t p = begin; p < end; ++p) {
    for (int64_t k0 = 0; k0 < all; k0 += chunk) {
      std::memset(sums, 0, size_t(count) * sizeof(float));
      multiply_chunk<E>(x, b, p, k0, HWY_MIN(all, k0 + chunk), piece, sums);
      for (int64_t i = 0; i < count; i += kLanes) {
        const VF s = hn::Load(df, sums + i);
        hn::Store(k0 == 0 ? s : hn::Add(hn::Load(df, total + i), s), df, total + i);
      }
    }
    write_sums(out, total, x.count, 0, p * kCols);
  }
}

void run_few(const GemmOutput& out, const GemmRows& x, const GemmFactor& b, int64_t begin,
             int64_t end, float* scratch) {
  with_element(x.element, [&](auto e) { run_few_as<decltype(e)>(out, x, b, begin, end, scratch); });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(few_scratch_floats);
HWY_EXPORT(run_few);

int64_t gemm_few_scratch(int64_t rows) { return HWY_DYNAMIC_DISPATCH(few_scratch_floats)(rows); }
void gemm_few_panels(const GemmOutput& out, const GemmRows& x, const GemmFactor& b, int64_t begin,
                     int64_t end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_few)(out, x, b, begin, end, scratch);
}

}  // namespace nibble::cpu
#endif
