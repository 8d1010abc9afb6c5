// SPDX-License-Identifier: MIT
#include "generate/sampler.h"

#include <cmath>

#include "core/error.h"

namespace nibble {

SampleRow sample_row(const SampleOptions& o, uint64_t draw) {
  if (!(o.top_p > 0) || o.top_p > 1) throw_usage("top-p is {}, expected 0 < p <= 1", o.top_p);
  if (!(o.min_p >= 0) || o.min_p > 1) throw_usage("min-p is {}, expected 0..1", o.min_p);
  if (o.top_k < 0) throw_usage("top-k is {}, expected 0 (all) or more", o.top_k);
  if (!(o.repetition_penalty > 0))
    throw_usage("repetition penalty is {}, expected > 0", o.repetition_penalty);
  if (std::isnan(o.temperature)) throw_usage("temperature is not a number");
  SampleRow row;
  row.temperature = o.temperature;
  row.top_p = o.top_p;
  row.min_p = o.min_p;
  row.repetition_penalty = o.repetition_penalty;
  row.seed = o.seed;
  row.draw = draw;
  row.top_k = o.top_k;
  return row;
}

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> context) {
  const int32_t id = choose_token(logits, context, row_, scratch_);
  ++row_.draw;
  return id;
}

}  // namespace nibble
