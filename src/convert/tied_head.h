// SPDX-License-Identifier: MIT
// Is the stored head the embedding? A file of a tied model may hold both.
#pragma once
#include "core/thread_pool.h"
#include "formats/weights.h"

namespace nibble {

struct HeadCheck {
  enum class Relation {
    absent,     // there is no head (or no embedding) in the file
    tied,       // equal values, or the nearest codes under the head's own scales
    rounded,    // one matrix at two precisions (model/same_matrix.h)
    different,  // trained apart, or another model's
  };
  Relation relation = Relation::absent;
  double share = 0;  // of equal rows (raw head) or of blocks with nearest codes (NVFP4)
};

constexpr double kTiedShare = 0.999;  // blocks that must hold the nearest codes

// Nearest holds for any scale rule: scales are taken from the head. Some quantisers round to bf16
// first, so a code whose distance exceeds the nearest one's by less than that rounding counts.
HeadCheck check_head(const WeightIndex& index, ThreadPool& pool);

}  // namespace nibble
