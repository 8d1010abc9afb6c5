// SPDX-License-Identifier: MIT
#pragma once
#include "backend/backend.h"
#include "support/ref_value.h"

namespace nibble::test::ref {
template <class T>
void quantize_rows(const LinearWeight&, int64_t, Tensor, ScaleRule) {
  throw_internal("quantize_rows");
}
template <class T>
void linear_dgrad(Tensor, Tensor, const LinearWeight&, Accumulate) {
  throw_internal("linear_dgrad");
}
template <class T>
void linear_wgrad(Tensor, Tensor, Tensor, const GradWrite&) {
  throw_internal("linear_wgrad");
}
}  // namespace nibble::test::ref
