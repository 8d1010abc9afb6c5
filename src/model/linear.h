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

// dW of every trained run of rows, and sums of its squares where they are wanted and can be had.
// dy [N, out], x [N, in]. `g` is the gradient of that slot of that layer.
inline void linear_wgrad(Backend& be, const LinearGrad& g, Tensor dy, Tensor x,
                         const GradStream& stream, ParamSlot slot, int64_t layer) {
  for (const GradRun& run : g.runs) {
    const int64_t rows = run.dw.dim(0);
    GradWrite write = stream.of(slot, layer);
    write.offset += run.row_begin * run.dw.dim(1);
    const Tensor dy_run = dy.columns(run.row_begin, rows);
    const Tensor parts = stream.squares ? stream.squares->next() : Tensor{};
    if (parts && be.linear_wgrad_squares(run.dw, parts, dy_run, x, write)) {
      stream.squares->add(slot, layer, run.row_begin, rows);
    } else {
      be.linear_wgrad(run.dw, dy_run, x, write);
    }
  }
}

}  // namespace nibble
