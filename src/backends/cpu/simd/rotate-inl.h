// SPDX-License-Identifier: MIT
// The rotation of rotary embedding, for the forward and the backward pass.
#if defined(NIBBLE_CPU_SIMD_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_CPU_SIMD_ROTATE_INL_H_
#undef NIBBLE_CPU_SIMD_ROTATE_INL_H_
#else
#define NIBBLE_CPU_SIMD_ROTATE_INL_H_
#endif

#include "backends/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// One head: (a, b) -> (a cos - b sin, b cos + a sin), the halves of the head being a and b.
// `change` acts on each element before the rotation, `finish` on each after it, before it is
// rounded.
template <class Out, class T, class F, class G>
void rotate(Out* out, const T* x, const float* cos, const float* sin, int64_t half, float sign,
            F change, G finish) {
  const VF s = hn::Set(DF(), sign);
  const auto step = [&](VF a, VF b, VF c, VF si, VF* oa, VF* ob) HWY_ATTR {
    si = hn::Mul(si, s);
    *oa = hn::NegMulAdd(b, si, hn::Mul(a, c));
    *ob = hn::MulAdd(a, si, hn::Mul(b, c));
  };
  int64_t i = 0;
  VF oa, ob;
  for (; i + kLanes <= half; i += kLanes) {
    step(change(load(x + i), i, kLanes), change(load(x + half + i), half + i, kLanes),
         load(cos + i), load(sin + i), &oa, &ob);
    store(finish(oa, i, i, kLanes), out + i);
    store(finish(ob, half + i, i, kLanes), out + half + i);
  }
  if (i < half) {
    const int64_t left = half - i;
    step(change(load_tail(x + i, left), i, left),
         change(load_tail(x + half + i, left), half + i, left), load_tail(cos + i, left),
         load_tail(sin + i, left), &oa, &ob);
    store_tail(finish(oa, i, i, left), out + i, left);
    store_tail(finish(ob, half + i, i, left), out + half + i, left);
  }
}

template <class Out, class T, class F>
void rotate(Out* out, const T* x, const float* cos, const float* sin, int64_t half, float sign,
            F change) {
  rotate(out, x, cos, sin, half, sign, change,
         [](VF v, int64_t, int64_t, int64_t) HWY_ATTR { return v; });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
