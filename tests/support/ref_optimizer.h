// SPDX-License-Identifier: MIT
#pragma once
#include "backend/backend.h"
#include "support/ref_value.h"

namespace nibble::test::ref {
template <class T>
void sum_squares(Tensor, Tensor) {
  throw_internal("sum_squares");
}
template <class T>
void adamw_step(Tensor, Tensor, Tensor, Tensor, MomentFormat, int64_t, int64_t, const AdamwStep&,
                const Requantize&) {
  throw_internal("adamw_step");
}
}  // namespace nibble::test::ref
