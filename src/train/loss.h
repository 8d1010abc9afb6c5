// SPDX-License-Identifier: MIT
// The loss over the normalised output rows, its gradient, and the head's own gradient. The
// vocabulary is processed in pieces: logits of a whole batch never exist.
#pragma once
#include <functional>

#include "train/memory.h"

namespace nibble {

// Rows [begin, begin + count) of the head as the product sees them; begin % kRowPanel == 0.
using HeadRows = std::function<LinearWeight(int64_t begin, int64_t count)>;

enum class WantGradient { no, yes };

// Outputs that have a teacher instead of a target: the last n_out.dim(0) of the batch's.
struct KeptRows {
  HeadRows head{};   // the teacher's
  Tensor n_out{};    // [K, its C] act; empty: none are kept
  double scale = 0;  // of their gradients

  int64_t rows() const { return n_out ? n_out.dim(0) : 0; }
};

struct LossInputs {
  const Config& config;
  HeadRows head;
  Tensor embed;      // [V, C], the scalar loss's targets
  Tensor n_out;      // [R, C] act, from forward_hidden
  double scale = 1;  // of the gradients: 1 / scored tokens of the step, times the loss scale
  WantGradient gradient = WantGradient::yes;
  Tensor d_head;  // [V, C] gradient of the head, or empty: frozen
  GradWrite head_write;
  KeptRows kept{};
};

// Cross entropy of the rows with a target, KL(teacher || model) of those that are kept. Fills
// t.loss (per row, unscaled) and, when wanted, t.d_out and d_head. t.targets must be set, -1 for
// rows that are kept.
void vocabulary_loss(Backend& backend, const LossInputs& in, const LossTensors& t);
// The same with mean |n_out - embedding of the target|; the head is not involved.
void scalar_loss(Backend& backend, const LossInputs& in, const LossTensors& t);

}  // namespace nibble
