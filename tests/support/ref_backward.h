// SPDX-License-Identifier: MIT
#pragma once
#include "backend/backend.h"
#include "support/ref_value.h"

namespace nibble::test::ref {
template <class T>
void softmax_stats(Tensor, Tensor, Tensor, int64_t, Accumulate) {
  throw_internal("softmax_stats");
}
template <class T>
void cross_entropy(Tensor, Tensor, Tensor) {
  throw_internal("cross_entropy");
}
template <class T>
void cross_entropy_back(Tensor, Tensor, Tensor, Tensor, int64_t, double) {
  throw_internal("cross_entropy_back");
}
template <class T>
void l1_loss(Tensor, Tensor, Tensor, Tensor, Tensor, double) {
  throw_internal("l1_loss");
}
template <class T>
void rms_norm_back(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Accumulate) {
  throw_internal("rms_norm_back");
}
template <class T>
void attention_back(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, KvView, Tensor) {
  throw_internal("attention_back");
}
template <class T>
void swiglu_back(Tensor, Tensor, Tensor, Tensor, Tensor) {
  throw_internal("swiglu_back");
}
template <class T>
void embed_back(Tensor, Tensor, Tensor, Tensor, const GradWrite&) {
  throw_internal("embed_back");
}
template <class T>
void scatter_rows(Tensor, Tensor, Tensor) {
  throw_internal("scatter_rows");
}
}  // namespace nibble::test::ref
