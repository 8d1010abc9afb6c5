// SPDX-License-Identifier: MIT
// Whole sequences through the model at once, without a cache: logits of every position and the
// loss. This is the forward of training; `trace` and the golden tests read it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/acts.h"
#include "model/load.h"

namespace nibble {

struct EvaluateOptions {
  DType compute = DType::f32;
  DType stat = DType::f32;  // f64 with compute f64 (the reference backend)
  Activations activations = Activations::none;
  Keep keep = Keep::none;  // all: every activation in a slot of its own, as training has them
  // Keys and values pass through a cache of this type, as in inference; unset: they are used as the
  // activations they are, as in training.
  std::optional<DType> cache = std::nullopt;
};

struct Evaluation {
  std::vector<float> logits;  // [B, T, V]
  double loss = 0;            // mean over scored positions; 0 without labels
  int64_t scored = 0;         // positions with a label
};

// input_ids [B, T]; labels empty or [B, T] in the Hugging Face convention: the logits at t are
// scored against the label at t + 1, and a negative label is not scored.
Evaluation evaluate(Backend& backend, const Model& model, std::span<const int64_t> input_ids,
                    std::span<const int64_t> labels, int64_t B, int64_t T,
                    const EvaluateOptions& options);

}  // namespace nibble
