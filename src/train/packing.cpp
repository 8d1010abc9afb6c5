// SPDX-License-Identifier: MIT
#include "train/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace nibble {
namespace {

constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();  // row numbers are i32

enum class RowUse { taught, kept };

void append(PackedBatch& b, const Sample& s, RowUse use = RowUse::taught) {
  const int64_t base = b.tokens(), n = s.rows();
  if (n < 1) throw_internal("a sample of {} tokens has nothing to predict", s.ids.size());
  if (n > kMostRows - base) {
    throw_usage("a batch cannot hold more than {} tokens; use a smaller batch or window",
                kMostRows);
  }
  b.ids.insert(b.ids.end(), s.ids.begin(), s.ids.end() - 1);
  int32_t position = 0;
  for (int64_t r = 0; r < n; ++r) {
    const auto row = int32_t(base + r);
    if (s.row_starts(r)) {
      b.sequences.push_back({row, 0, row, 0});
      position = 0;
    }
    b.positions.push_back(position++);
    b.slots.push_back(row);
    b.sequences.back().q_len = b.sequences.back().kv_len = position;
    if (use == RowUse::kept || s.row_scored(r)) {
      b.out_rows.push_back(row);
      b.targets.push_back(use == RowUse::kept ? -1 : s.ids[size_t(r) + 1]);
    }
  }
  ++b.samples;
}

// Not std::stable_sort, which allocates: the row number makes every key different.
void finish(PackedBatch& b) {
  b.order.resize(b.ids.size());
  std::iota(b.order.begin(), b.order.end(), 0);
  std::sort(b.order.begin(), b.order.end(), [&ids = b.ids](int32_t x, int32_t y) {
    const int32_t a = ids[size_t(x)], c = ids[size_t(y)];
    return a != c ? a < c : x < y;
  });
}

int64_t bound(int64_t most_a_sample, const PackLimits& limits, int64_t most_rows) {
  if (limits.samples == 0) return most_rows;
  const bool overflows = limits.samples > kMostRows / std::max<int64_t>(1, most_a_sample);
  const int64_t by_samples = overflows ? kMostRows : limits.samples * most_a_sample;
  return std::min(by_samples, most_rows);
}

}  // namespace

void PackedBatch::clear() {
  for (auto* v : {&ids, &positions, &slots, &out_rows, &targets, &order}) v->clear();
  sequences.clear();
  samples = kept_tokens = kept_sequences = 0;
}

PackBounds pack_bounds(const Dataset& data, const PackLimits& limits) {
  if (limits.samples < 0 || limits.tokens < 0 || (limits.samples == 0 && limits.tokens == 0)) {
    throw_usage("a batch needs a limit: {} samples, {} tokens were given", limits.samples,
                limits.tokens);
  }
  if (limits.tokens > 0 && limits.tokens < data.most_rows()) {
    throw_usage(
        "a batch of {} tokens cannot hold the longest sample, which has {}: use larger batches or "
        "a shorter window",
        limits.tokens, data.most_rows());
  }
  const int64_t most = limits.tokens > 0 ? std::min(limits.tokens, kMostRows) : kMostRows;
  PackBounds b;
  b.tokens = bound(data.most_rows(), limits, most);
  b.outputs = bound(data.most_scored(), limits, b.tokens);
  b.sequences = bound(data.most_segments(), limits, b.tokens);
  return b;
}

void reserve(PackedBatch& batch, const PackBounds& bounds) {
  for (auto* v : {&batch.ids, &batch.positions, &batch.slots, &batch.order}) {
    v->reserve(size_t(bounds.tokens));
  }
  batch.out_rows.reserve(size_t(bounds.outputs));
  batch.targets.reserve(size_t(bounds.outputs));
  batch.sequences.reserve(size_t(bounds.sequences));
}

void pack(PackedBatch& batch, std::span<const Sample> samples, std::span<const Sample> kept) {
  batch.clear();
  for (const Sample& s : samples) append(batch, s);
  const int64_t tokens = batch.tokens(), sequences = int64_t(batch.sequences.size());
  for (const Sample& s : kept) append(batch, s, RowUse::kept);
  batch.kept_tokens = batch.tokens() - tokens;
  batch.kept_sequences = int64_t(batch.sequences.size()) - sequences;
  finish(batch);
}

uint64_t pack_next(PackedBatch& batch, const Dataset& data, SampleOrder& order, uint64_t position,
                   const PackLimits& limits) {
  if (limits.samples == 0 && limits.tokens == 0) throw_internal("a batch without a limit");
  batch.clear();
  while (limits.samples == 0 || batch.samples < limits.samples) {
    const Sample s = data.sample(order.at(position));
    if (limits.tokens > 0 && s.rows() > limits.tokens - batch.tokens()) break;
    append(batch, s);
    ++position;
  }
  if (batch.samples == 0) {
    throw_internal("sample {} does not fit {} tokens: pack_bounds() was not asked",
                   order.at(position), limits.tokens);
  }
  finish(batch);
  return position;
}

}  // namespace nibble
