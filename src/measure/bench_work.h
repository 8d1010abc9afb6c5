// SPDX-License-Identifier: MIT
// What a token costs at least, and figures from samples.
#pragma once
#include <cstdint>
#include <vector>

#include "model/load.h"

namespace nibble {

struct Work {
  double bytes = 0;  // that must be read from memory
  double flops = 0;  // multiply and add counted apart
};
// `tokens` tokens in one pass on top of `past` cached ones; logits of the last one only. With
// `sequences`, so many of them at once: the weights are read once for all.
Work forward_work(const Model& model, int64_t tokens, int64_t past, DType cache,
                  int64_t sequences = 1);

struct Quantiles {
  double p10 = 0, median = 0, p90 = 0;
};
// By linear interpolation between neighbours; needs at least one sample.
Quantiles quantiles(std::vector<double> samples);

}  // namespace nibble
