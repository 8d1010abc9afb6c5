// SPDX-License-Identifier: MIT
// The two kinds of panels (GemmElement in kernels/gemm.h). Their 32-bit steps are carried in
// vectors of floats, whatever they hold. Compiled once per target.
#if defined(NIBBLE_CPU_KERNELS_GEMM_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_KERNELS_GEMM_ELEMENT_INL_H_
#undef NIBBLE_CPU_KERNELS_GEMM_ELEMENT_INL_H_
#else
#define NIBBLE_CPU_KERNELS_GEMM_ELEMENT_INL_H_
#endif

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

struct Floats {
  static constexpr int64_t kDepth = gemm_depth(GemmElement::f32);
  // kLanes steps of a row; the tail has `n` elements and zeros.
  template <class T>
  static HWY_INLINE VF load_steps(const T* p) {
    return load(p);
  }
  template <class T>
  static HWY_INLINE VF load_steps_tail(const T* p, int64_t n) {
    return load_tail(p, n);
  }
  static HWY_INLINE VF multiply_add(VF x, VF w, VF sum) { return hn::MulAdd(x, w, sum); }
};

#if HWY_TARGET == HWY_AVX3
struct Pairs {
  static constexpr int64_t kDepth = gemm_depth(GemmElement::bf16_pair);
  // A row has the earlier element below, a pair has it above.
  static HWY_INLINE VF from_row(VU pairs) { return hn::BitCast(DF(), hn::RotateRight<16>(pairs)); }
  static HWY_INLINE VF load_steps(const bf16_t* p) {
    return from_row(hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(p)));
  }
  static HWY_INLINE VF load_steps_tail(const bf16_t* p, int64_t n) {
    alignas(64) uint32_t buffer[kLanes] = {};
    std::memcpy(buffer, p, size_t(n) * sizeof(bf16_t));
    return from_row(hn::Load(DU(), buffer));
  }
  // One step of kLanes columns.
  static HWY_INLINE VF load_rows(const bf16_t* first, const bf16_t* second) {
    const auto columns = [](const bf16_t* p) HWY_ATTR {
      return hn::PromoteTo(DU(), hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p)));
    };
    return hn::BitCast(DF(), hn::Or(hn::ShiftLeft<16>(columns(first)), columns(second)));
  }
  // One step of floats that are exact in bf16.
  static HWY_INLINE VF join(VF first, VF second) {
    const DU du;
    return hn::BitCast(DF(),
                       hn::Or(hn::BitCast(du, first), hn::ShiftRight<16>(hn::BitCast(du, second))));
  }
  // Highway's AVX3 does not include it, so the compiler's intrinsic is out of reach here.
  static HWY_INLINE VF multiply_add(VF x, VF w, VF sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
  }
};
#endif

// Calls f with the one of them; pairs are chosen only where there are any.
template <class F>
HWY_INLINE void with_element(GemmElement element, F f) {
#if HWY_TARGET == HWY_AVX3
  if (element == GemmElement::bf16_pair) {
    f(Pairs());
    return;
  }
#endif
  (void)element;
  f(Floats());
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
