// SPDX-License-Identifier: MIT
// AdamW of one element, for host and device: the only place its arithmetic is written down
// (docs/numerics.md has the text).
#pragma once
#include <cmath>
#include <cstdint>

#include "optim/adamw.h"
#include "quant/codec.h"
#include "quant/rounding.h"

namespace nibble {

// R is float; double in the reference.
template <class R>
struct AdamwTerms {
  R lr, beta1, beta2, rest1, rest2, inverse_bias1, inverse_bias2, eps, decay, grad_scale;

  explicit AdamwTerms(const AdamwStep& s)
      : lr(R(s.lr)),
        beta1(R(s.beta1)),
        beta2(R(s.beta2)),
        rest1(R(1) - R(s.beta1)),
        rest2(R(1) - R(s.beta2)),
        inverse_bias1(R(1) / R(s.bias1)),
        inverse_bias2(R(1) / R(s.bias2)),
        eps(R(s.eps)),
        decay(R(s.weight_decay)),
        grad_scale(R(s.grad_scale)) {}
};

// Every operation rounds once, in this order; nothing is fused.
template <class R>
NIBBLE_HOST_DEVICE inline void adamw_element(const AdamwTerms<R>& t, R gradient, R& m, R& v, R& w) {
  const R g = gradient * t.grad_scale;
  m = t.beta1 * m + t.rest1 * g;
  v = t.beta2 * v + t.rest2 * (g * g);
  const R update = m * t.inverse_bias1 / (std::sqrt(v * t.inverse_bias2) + t.eps) + t.decay * w;
  // A step of nothing leaves the bits alone: -0 - (-0) would be +0.
  const R step = t.lr * update;
  if (step != R(0)) w = w - step;
}

// A bf16 master after its update.
NIBBLE_HOST_DEVICE constexpr bf16_t round_master(MasterRounding rounding, float x, uint32_t bits) {
  return stochastic_bf16(x, rounding == MasterRounding::nearest ? nearest_bits(x) : bits);
}

}  // namespace nibble
