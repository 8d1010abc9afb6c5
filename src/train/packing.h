// SPDX-License-Identifier: MIT
// Several samples in one batch without padding: what goes to the backend, in host memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "train/dataset.h"
#include "train/sample_order.h"

namespace nibble {

// Rows of samples end to end. Filled by pack(); filling it again reuses the memory, so it stops
// growing at the largest batch (or never grows, after reserve()).
struct PackedBatch {
  std::vector<int32_t> ids;         // [N]
  std::vector<int32_t> positions;   // [N] counted from 0 in every segment
  std::vector<int32_t> slots;       // [N] the row itself: keys and values are the batch's own
  std::vector<Sequence> sequences;  // [S] one per segment
  std::vector<int32_t> out_rows;    // [R] the scored rows, ascending
  std::vector<int32_t> targets;     // [R] what each should predict
  std::vector<int32_t> order;       // [N] rows by (id, row), for embed_back
  int64_t samples = 0;
  // Kept samples come last, and every row of theirs is an output without a target: the last so many
  // of ids, out_rows and targets (-1), and of the sequences.
  int64_t kept_tokens = 0, kept_sequences = 0;

  int64_t tokens() const { return int64_t(ids.size()); }
  int64_t outputs() const { return int64_t(out_rows.size()); }
  int64_t taught() const { return outputs() - kept_tokens; }  // outputs that have a target
  void clear();
};

// A batch takes samples in order until the next one would exceed either; 0: no such limit, but
// not both. A sample is never split.
struct PackLimits {
  int64_t samples = 0;
  int64_t tokens = 0;  // at least the rows of the longest sample
};

// No batch of this data is larger. Memory is planned with these.
struct PackBounds {
  int64_t tokens = 0, outputs = 0, sequences = 0;
  int64_t kept_tokens = 0, kept_sequences = 0;  // of these, what is kept
};
PackBounds pack_bounds(const Dataset& data, const PackLimits& limits);  // throws UsageError
void reserve(PackedBatch& batch, const PackBounds& bounds);

// All of `samples`, in order, then those that are `kept`.
void pack(PackedBatch& batch, std::span<const Sample> samples, std::span<const Sample> kept = {});
// The samples from `position` of the run on, as many as the limits let; returns the position
// after them. A batch may reach into the next epoch.
uint64_t pack_next(PackedBatch& batch, const Dataset& data, SampleOrder& order, uint64_t position,
                   const PackLimits& limits);

}  // namespace nibble
