// SPDX-License-Identifier: MIT
// The samples of a job, and the batches made of them.
#pragma once
#include <optional>

#include "job/batch_source.h"
#include "job/keep/kept_source.h"
#include "job/train_inputs.h"
#include "job/train_job.h"

namespace nibble {

struct JobSamples {
  std::optional<Dataset> train;  // none where nothing is taught
  std::optional<Dataset> held_out;
  std::vector<Dataset> kept{};  // by source

  int64_t taught() const { return train ? train->size() : 0; }
  int64_t all_kept() const;
  // What a run without taught samples has for its first words is a kept one.
  const Dataset& first() const { return train ? *train : kept.front(); }
};

// Throws what load_dataset throws, and UsageError for samples the model has no positions for.
// Without what is kept.
JobSamples load_samples(const TrainJob& job, const TrainInputs& inputs);
// One of --keep; `made` is the file the teacher wrote for it, if it had to.
Dataset load_kept(const TrainJob& job, const TrainInputs& inputs, const KeptSource& source,
                  const std::filesystem::path& made);

// Of samples that outlive them.
struct JobBatches {
  JobBatches(const TrainJob& job, const JobSamples& samples);

  std::unique_ptr<BatchSource> train;
  std::optional<DatasetBatches> held_out;
  PackBounds bounds;  // of both
};

}  // namespace nibble
