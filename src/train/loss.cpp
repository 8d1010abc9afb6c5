// SPDX-License-Identifier: MIT
#include "train/loss.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {

void cross_entropy_loss(Backend& be, const LossInputs& in, const LossTensors& t) {
  const int64_t V = in.config.V, piece = t.logits.dim(1), rows = t.logits.dim(0);
  const auto logits_of = [&](const LinearWeight& head) {
    const Tensor logits = make_tensor(t.logits.data, t.logits.dtype, {rows, head.out});
    be.linear(logits, in.n_out, head, Activations::none);
    return logits;
  };
  const auto each_piece = [&](auto&& body) {
    for (int64_t v = 0; v < V; v += piece) body(v, in.head(v, std::min(piece, V - v)));
  };
  each_piece([&](int64_t v, const LinearWeight& head) {
    be.softmax_stats(t.stats, logits_of(head), t.targets, v,
                     v == 0 ? Accumulate::no : Accumulate::yes);
  });
  be.cross_entropy(t.loss, t.stats, t.targets);
  if (in.gradient == WantGradient::no) return;
  each_piece([&](int64_t v, const LinearWeight& head) {
    // A single piece still lies there from the first pass.
    const Tensor logits = piece >= V ? t.logits : logits_of(head);
    const Tensor dlogits = make_tensor(t.dlogits.data, t.dlogits.dtype, {rows, head.out});
    be.cross_entropy_back(dlogits, logits, t.stats, t.targets, v, in.scale);
    be.linear_dgrad(t.d_out, dlogits, head, v == 0 ? Accumulate::no : Accumulate::yes);
    if (in.d_head) {
      GradWrite write = in.head_write;
      write.offset += v * in.d_head.dim(1);
      be.linear_wgrad(in.d_head.slice(v, head.out), dlogits, in.n_out, write);
    }
  });
}

void scalar_loss(Backend& be, const LossInputs& in, const LossTensors& t) {
  be.l1_loss(t.loss, t.d_out, in.n_out, in.embed, t.targets, in.scale);
}

}  // namespace nibble
