// SPDX-License-Identifier: MIT
#include "job/batch_source.h"

#include <algorithm>

#include "core/rng.h"

namespace nibble {

DatasetBatches::DatasetBatches(const Dataset& data, SampleMode mode, uint64_t seed,
                               int64_t batch_size, EpochEnd epoch_end)
    : data_(data), mode_(mode), order_(mode, data.size(), seed), epoch_end_(epoch_end) {
  limits_.samples = batch_size;
  bounds_ = pack_bounds(data, limits_);
}

uint64_t DatasetBatches::next(PackedBatch& batch, uint64_t position) {
  PackLimits limits = limits_;
  if (epoch_end_ == EpochEnd::ends_batch) {
    const auto size = uint64_t(data_.size());
    limits.samples = std::min(limits.samples, int64_t(size - position % size));
  }
  return pack_next(batch, data_, order_, position, limits);
}

void DatasetBatches::add_identity(RunIdentity& identity) const {
  identity["training data"] = fmt::format("{:016x}", data_.content_hash());
  identity["sample-mode"] = sample_mode_name(mode_);
  identity["batch-size"] = fmt::format("{}", limits_.samples);
}

KeepingBatches::KeepingBatches(const Dataset* taught, const std::vector<Dataset>& kept,
                               KeepShare share, SampleMode mode, uint64_t seed, int64_t batch_size)
    : share_(share), mode_(mode), batch_size_(batch_size) {
  if (taught) {
    taught_ = Part{taught, SampleOrder(mode, taught->size(), seed)};
    bounds_ = pack_bounds(*taught, {share.most_taught(batch_size), 0});
  }
  PackBounds most;
  for (const Dataset& d : kept) {
    // Every file in an order of its own.
    kept_.push_back({&d, SampleOrder(mode, d.size(), seed + 1 + kept_.size())});
    const PackBounds b = pack_bounds(d, {share.most_kept(batch_size), 0});
    most.tokens = std::max(most.tokens, b.tokens);
    most.sequences = std::max(most.sequences, b.sequences);
  }
  bounds_.kept_tokens = most.tokens;
  bounds_.kept_sequences = most.sequences;
  bounds_.tokens += most.tokens;
  bounds_.outputs += most.tokens;  // every row that is kept is one
  bounds_.sequences += most.sequences;
}

uint64_t KeepingBatches::next(PackedBatch& batch, uint64_t position) {
  now_taught_.clear(), now_kept_.clear();
  const uint64_t end = position + uint64_t(batch_size_);
  for (; position < end; ++position) {
    const uint64_t k = share_.kept_before(position);
    if (share_.kept(position)) {
      now_kept_.push_back(kept_[size_t(k % kept_.size())].at(k / kept_.size()));
    } else {
      now_taught_.push_back(taught_->at(position - k));
    }
  }
  pack(batch, now_taught_, now_kept_);
  return position;
}

void KeepingBatches::add_identity(RunIdentity& identity) const {
  if (taught_) identity["training data"] = fmt::format("{:016x}", taught_->data->content_hash());
  std::string kept;
  for (const Part& p : kept_) {
    kept += fmt::format("{}{:016x}", kept.empty() ? "" : ",", p.data->content_hash());
  }
  identity["keep"] = kept;
  identity["keep-share"] = fmt::format("{}", share_.share());
  identity["sample-mode"] = sample_mode_name(mode_);
  identity["batch-size"] = fmt::format("{}", batch_size_);
}

double KeepingBatches::epoch(uint64_t position) const {
  const uint64_t kept = share_.kept_before(position);
  if (taught_) return double(position - kept) / double(taught_->data->size());
  int64_t samples = 0;
  for (const Part& p : kept_) samples += p.data->size();
  return double(kept) / double(samples);
}

uint64_t RandomBatches::next(PackedBatch& batch, uint64_t position) {
  const int64_t length = seq_len_ + 1;
  ids_.resize(size_t(batch_size_ * length));
  flags_.assign(ids_.size(), kScored);
  samples_.clear();
  for (int64_t b = 0; b < batch_size_; ++b) {
    const size_t at = size_t(b * length);
    for (int64_t i = 0; i < length; ++i) {
      const auto word = philox(seed_, position + uint64_t(b), uint64_t(i))[0];
      ids_[at + size_t(i)] = int32_t(word % uint64_t(vocabulary_));
    }
    samples_.push_back({{ids_.data() + at, size_t(length)}, {flags_.data() + at, size_t(length)}});
  }
  pack(batch, samples_);
  return position + uint64_t(batch_size_);
}

void RandomBatches::add_identity(RunIdentity& identity) const {
  identity["training data"] = "random tokens";
  identity["batch-size"] = fmt::format("{}", batch_size_);
  identity["seq-len"] = fmt::format("{}", seq_len_);
}

}  // namespace nibble
