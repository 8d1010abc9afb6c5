// SPDX-License-Identifier: MIT
// Rotary embedding as a model's config describes it, and the frequencies that follow. Everything
// is formed in double, once, on the host.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "backend/rope.h"
#include "backend/weight_views.h"

namespace nibble {

enum class RopeKind {
  standard,  // theta^(-2i/D)
  linear,    // all positions closer together by `factor`
  llama3,    // slow pairs slowed by `factor`, fast ones as they are, a ramp between
  yarn,      // the same with a ramp over pairs, and longer queries and keys
};
std::string_view rope_kind_name(RopeKind kind);  // as in config.json: "default", "linear", ...

struct RopeSpec {
  RopeKind kind = RopeKind::standard;
  double theta = 1e6;
  double factor = 1;              // not of standard
  double original_positions = 0;  // llama3, yarn: positions the model was first trained for
  // llama3: a pair is fast (slow) that turns more (less) often than this over those positions.
  double low_freq_factor = 1, high_freq_factor = 4;
  // yarn: the same, and the ramp's ends as whole pairs or not.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double attention_factor = 1;  // yarn: of cosines and sines
};

// What yarn multiplies cosines and sines by where the config does not say.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

RopeFrequencies rope_frequencies(const RopeSpec& rope, int64_t head_width);

// The pairs that turn by less than a radian over `positions`: there a bias taken off a key leaves
// less of it than there was, at every position.
StillPairs still_pairs(const RopeFrequencies& frequencies, int64_t positions);

}  // namespace nibble
