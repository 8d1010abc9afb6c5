// SPDX-License-Identifier: MIT
// What a backend whose ops run beside the host may offer (Backend::make_hand_over): the next step
// of decoding is enqueued before the token it goes on with is in host memory.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace nibble {

// The tables of a step of one sequence, and the token it has chosen; all i32.
struct StepTables {
  Tensor ids, positions, slots;  // [1]
  Tensor sequences;              // [1, 4]
  Tensor rows;                   // [1, 16]: a SampleRow
  Tensor chosen;                 // [1]
};

// Of one engine: what it knows is of the engine's steps.
class HandOver {
 public:
  virtual ~HandOver() = default;
  // An op, which may be recorded: makes the tables those of the step that goes on with the chosen
  // token (0 where none could be chosen; a penalty's history is left as it is), and begins to bring
  // that to the host.
  virtual void advance(const StepTables& tables) = 0;
  // All ops so far are those that chosen_at waits for.
  virtual void mark() = 0;
  // The token that the step of this position has chosen, the last before the mark. One more step
  // may have been enqueued since: it is not waited for.
  virtual int32_t chosen_at(int64_t position) = 0;
};

}  // namespace nibble
