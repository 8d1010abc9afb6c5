// SPDX-License-Identifier: MIT
// Where precision is applied to a linear layer: the one place that knows which rounding an input
// gets before its product.
#pragma once
#include "backend/backend.h"
#include "model/grads.h"

namespace nibble {

// int8 activations exist for packed weights only: a dense weight (a tied head in bf16, a layer the
// user left unquantised) takes its input as it is.
inline Activations activations_for(const LinearWeight& w, Activations wanted) {
  return wanted == Activations::int8 && !w.is_packed() ? Activations::none : wanted;
}

// out = x . W^T. x [N, in], out [N, out].
inline void linear_forward(Backend& be, Tensor out, Tensor x, const LinearWeight& w,
                           Activations wanted) {
  be.linear(out, x, w, activations_for(w, wanted));
}

// dW of every trained run of rows. dy [N, out], x [N, in].
inline void linear_wgrad(Backend& be, const LinearGrad& g, Tensor dy, Tensor x,
                         const GradWrite& write) {
  for (const GradRun& run : g.runs) {
    GradWrite part = write;
    part.offset += run.row_begin * run.dw.dim(1);
    be.linear_wgrad(run.dw, dy.columns(run.row_begin, run.dw.dim(0)), x, part);
  }
}

}  // namespace nibble
