// SPDX-License-Identifier: MIT
// Gradients in backend memory, in the shape of the weights. Only what is trained has any.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
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
class GradSquares {
 public:
  // parts f64 [n, kSquareParts], a row for each gradient to come; empty: none are wanted.
  void begin(Tensor parts);
  // The row for the next gradient, f64 [kSquareParts]; empty: there is none.
  Tensor next() const;
  // Its squares were made: rows [row_begin, row_begin + rows) of a slot's gradient.
  void add(ParamSlot slot, int64_t layer, int64_t row_begin, int64_t rows);
  // All that were made, f64 [count, kSquareParts]; empty when there are none.
  Tensor made() const;
  // Whether a parameter's gradient, alone or stacked with others, is among them.
  bool holds(const ParamSpec& param) const;

 private:
  struct Rows {
    ParamSlot slot;
    int64_t layer, row_begin;
    auto operator<=>(const Rows&) const = default;
  };
  Tensor parts_;
  std::map<Rows, int64_t> made_;  // to the end of the rows
};

// Which random bits a gradient's sums are rounded with, and what is wanted beside it.
struct GradStream {
  GradSquares* squares = nullptr;          // null: not wanted
  Accumulate accumulate = Accumulate::no;  // no: the step's first micro-batch
  uint64_t seed = 0;
  uint64_t base = 0;              // the low 16 bits are free
  bool head_wrote_embed = false;  // a tied head put its part into the embedding's gradient first
  // Where the embedding's gradient goes instead: a row for each different token of the batch, which
  // `embed_rows_of`, i32 [N], tells for each row of the batch. Empty: into the gradient itself.
  Tensor embed_rows{}, embed_rows_of{};
  GradWrite of(ParamSlot slot, int64_t layer) const {
    static_assert(uint64_t(ParamSlot::qkv_bias) < 16, "four bits tell the slots apart");
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
  // The embedding's are rows of the batch's tokens (GradStream::embed_rows): so many at most. Then
  // the gradient of an embedding without a head is those rows. 0: a row for each token there is.
  int64_t embed_rows = 0;
};

// trained[i] != 0: parameter i of the table has a gradient. A tied head must not be listed.
Grads make_grads(Arena& arena, const Config& config, std::span<const ParamSpec> table,
                 std::span<const uint8_t> trained, const GradLayout& layout);

// The gradient of one parameter, in its shape; empty when it is frozen (a frozen vector that is
// stacked with a trained one has a gradient that nobody reads).
Tensor grad_of(const Grads& grads, const ParamSpec& param);

// The lowest layer the backward must reach: -1 embedding, 0 .. L-1 a block, L only the final norm.
int64_t lowest_wanted(const Grads& grads);

}  // namespace nibble
