// SPDX-License-Identifier: MIT
#include "train/loss.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {

void vocabulary_loss(Backend& be, const LossInputs& in, const LossTensors& t) {
  const int64_t V = in.config.V, piece = t.logits.dim(1), rows = t.logits.dim(0);
  const int64_t kept = in.kept.rows(), taught = rows - kept;
  const auto product = [&](Tensor memory, Tensor x, const LinearWeight& head) {
    const Tensor logits = make_tensor(memory.data, memory.dtype, {x.dim(0), head.out});
    be.linear(logits, x, head, Activations::none);
    return logits;
  };
  const auto teacher_logits = [&](int64_t v, int64_t n) {
    return product(t.teacher_logits, in.kept.n_out, in.kept.head(v, n));
  };
  const auto each_piece = [&](auto&& body) {
    for (int64_t v = 0; v < V; v += piece) {
      const int64_t n = std::min(piece, V - v);
      body(v, in.head(v, n), v == 0 ? Accumulate::no : Accumulate::yes);
    }
  };
  each_piece([&](int64_t v, const LinearWeight& head, Accumulate add) {
    be.softmax_stats(t.stats, product(t.logits, in.n_out, head), t.targets, v, add);
    if (kept == 0) return;
    be.softmax_stats(t.teacher_stats, teacher_logits(v, head.out), t.targets.slice(taught, kept), v,
                     add);
  });
  be.cross_entropy(t.loss, t.stats, t.targets);
  const bool gradient = in.gradient == WantGradient::yes;
  if (!gradient && kept == 0) return;
  each_piece([&](int64_t v, const LinearWeight& head, Accumulate add) {
    // A single piece still lies there from the first pass.
    const bool there = piece >= V;
    const Tensor logits = there ? t.logits : product(t.logits, in.n_out, head);
    const Tensor dlogits = make_tensor(t.dlogits.data, t.dlogits.dtype, {rows, head.out});
    if (kept > 0) {
      const Tensor teacher = there ? t.teacher_logits : teacher_logits(v, head.out);
      be.divergence(t.loss.slice(taught, kept), gradient ? dlogits.slice(taught, kept) : Tensor{},
                    logits.slice(taught, kept), t.stats.slice(taught, kept), teacher,
                    t.teacher_stats, in.kept.scale, add);
    }
    if (!gradient) return;
    if (taught > 0) {
      be.cross_entropy_back(dlogits.slice(0, taught), logits.slice(0, taught),
                            t.stats.slice(0, taught), t.targets.slice(0, taught), v, in.scale);
    }
    be.linear_dgrad(t.d_out, dlogits, head, add);
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
