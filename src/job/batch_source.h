// SPDX-License-Identifier: MIT
// Where a training run's batches come from: a data set, or random tokens.
#pragma once
#include <memory>
#include <vector>

#include "job/keep/keep_choices.h"
#include "train/checkpoint.h"
#include "train/packing.h"

namespace nibble {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Fills `batch` from `position` of the run on; returns the position after it. The same position
  // always gives the same batch.
  virtual uint64_t next(PackedBatch& batch, uint64_t position) = 0;
  virtual PackBounds bounds() const = 0;
  virtual void add_identity(RunIdentity& identity) const = 0;
  virtual double epoch(uint64_t position) const = 0;
};

// What follows the last sample of an epoch: the first of the next one in the same batch, or the end
// of the batch.
enum class EpochEnd { runs_on, ends_batch };

class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Dataset& data, SampleMode mode, uint64_t seed, int64_t batch_size,
                 EpochEnd epoch_end = EpochEnd::runs_on);
  uint64_t next(PackedBatch& batch, uint64_t position) override;
  PackBounds bounds() const override { return bounds_; }
  void add_identity(RunIdentity& identity) const override;
  double epoch(uint64_t position) const override { return double(position) / double(data_.size()); }

 private:
  const Dataset& data_;
  SampleMode mode_;
  SampleOrder order_;
  EpochEnd epoch_end_;
  PackLimits limits_;
  PackBounds bounds_;
};

// Samples that are taught and samples that are kept, of a share that is the same all along the run:
// a batch may have one of either more or less than the next. Kept data sets take turns. `taught`
// may be null: then everything is kept.
class KeepingBatches final : public BatchSource {
 public:
  KeepingBatches(const Dataset* taught, const std::vector<Dataset>& kept, KeepShare share,
                 SampleMode mode, uint64_t seed, int64_t batch_size);
  uint64_t next(PackedBatch& batch, uint64_t position) override;
  PackBounds bounds() const override { return bounds_; }
  void add_identity(RunIdentity& identity) const override;
  double epoch(uint64_t position) const override;

 private:
  struct Part {
    const Dataset* data;
    SampleOrder order;
    Sample at(uint64_t position) { return data->sample(order.at(position)); }
  };
  std::optional<Part> taught_;
  std::vector<Part> kept_;
  KeepShare share_;
  SampleMode mode_;
  int64_t batch_size_;
  PackBounds bounds_;
  std::vector<Sample> now_taught_, now_kept_;  // of the batch at hand
};

// `batch_size` sequences of `seq_len` tokens drawn uniformly; every row is scored.
class RandomBatches final : public BatchSource {
 public:
  RandomBatches(int64_t vocabulary, int64_t seq_len, int64_t batch_size, uint64_t seed)
      : vocabulary_(vocabulary), seq_len_(seq_len), batch_size_(batch_size), seed_(seed) {}
  uint64_t next(PackedBatch& batch, uint64_t position) override;
  PackBounds bounds() const override {
    return {seq_len_ * batch_size_, seq_len_ * batch_size_, batch_size_};
  }
  void add_identity(RunIdentity& identity) const override;
  double epoch(uint64_t) const override { return 0; }

 private:
  int64_t vocabulary_, seq_len_, batch_size_;
  uint64_t seed_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> flags_;
  std::vector<Sample> samples_;
};

}  // namespace nibble
