// SPDX-License-Identifier: MIT
// Gradients in backend memory, in the shape of the weights. Only what is trained has any.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/params.h"
#include "model/slots.h"

namespace nibble {

// Consecutive rows of a (stacked) weight that are trained: q and v may be while k is frozen.
struct GradRun {
  int64_t row_begin = 0;
  Tensor dw;  // [rows, in]
};
struct LinearGrad {
  std::vector<GradRun> runs;  // empty: frozen
};

// A tensor without memory, a linear layer without runs: frozen. The embedding's gradient of a tied
// model is the sum of both uses; the head then has no runs.
using BlockGrads = BlockSlots<Tensor, LinearGrad>;
using Grads = ModelSlots<Tensor, LinearGrad>;

// Sums of squares of linear layers' gradients that the backend made while it wrote them.
struct GradSquares {
  static constexpr int64_t kParts = 144;  // enough for a part a multiprocessor
  Tensor parts;                           // f64 [n, kParts]; empty: none are wanted
  std::vector<Tensor> of;  // the gradients whose squares the first rows of parts add up to
};

// Which random bits a gradient's sums are rounded with, and what is wanted beside it.
struct GradStream {
  GradSquares* squares = nullptr;          // null: not wanted
  Accumulate accumulate = Accumulate::no;  // no: the step's first micro-batch
  uint64_t seed = 0;
  uint64_t base = 0;              // the low 16 bits are free
  bool head_wrote_embed = false;  // a tied head put its part into the embedding's gradient first
  GradWrite of(ParamSlot slot, int64_t layer) const {
    return {accumulate, seed, base | uint64_t((layer + 1) << 4) | uint64_t(slot)};
  }
};

struct GradLayout {
  DType matrix = DType::bf16;
  DType norm = DType::f32;
  // One layer's gradients at a time: they are used up before the next layer's are made. The
  // embedding of a tied model is the exception; the head writes it first.
  bool released = false;
  bool alternate = false;  // released ones of two neighbouring layers may exist at once
};

// trained[i] != 0: parameter i of the table has a gradient. A tied head must not be listed.
Grads make_grads(Arena& arena, const Config& config, std::span<const ParamSpec> table,
                 std::span<const uint8_t> trained, const GradLayout& layout);

// The gradient of one parameter, in its shape; empty when it is frozen.
Tensor grad_of(const Grads& grads, const ParamSpec& param);

// The lowest layer the backward must reach: -1 embedding, 0 .. L-1 a block, L only the final norm.
int64_t lowest_wanted(const Grads& grads);

}  // namespace nibble
