// SPDX-License-Identifier: MIT
// What a training step has to do at least, part by part: operations of its products, bytes of
// weights, gradients and optimizer, to hold measured times against. (Bytes of activations are not
// counted.)
#pragma once
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "measure/bench_ceilings.h"
#include "train/trainer.h"

namespace nibble {

struct PartWork {
  std::string name;
  double flops = 0, bytes = 0;  // at the same time
  double update_bytes = 0;      // then
  double ideal_ms(const Ceilings& c) const {
    return (std::max(flops / c.flops, bytes / c.bytes) + update_bytes / c.bytes) * 1e3;
  }
};

// Forward, head, backward, optimizer; the last two are one where gradients are released.
std::vector<PartWork> work_of_step(const TrainState& state, const PackedBatch& batch);
double total_flops(const std::vector<PartWork>& parts);

// Runs `steps` steps with a wait after each part and prints the median time of each beside what
// the measured ceilings would take.
void print_parts(Trainer& trainer, const PackedBatch& batch, int64_t steps,
                 const Ceilings& ceilings, std::ostream& out);

}  // namespace nibble
