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
