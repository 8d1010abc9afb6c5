// SPDX-License-Identifier: MIT
// The samples of a job, and the batches made of them.
#pragma once
#include <optional>

#include "job/batch_source.h"
#include "job/train_inputs.h"
#include "job/train_job.h"

namespace nibble {

struct JobSamples {
  Dataset train;
  std::optional<Dataset> held_out;
};

// Throws what load_dataset throws, and UsageError for samples the model has no positions for.
JobSamples load_samples(const TrainJob& job, const TrainInputs& inputs);

// Of samples that outlive them.
struct JobBatches {
  JobBatches(const TrainJob& job, const JobSamples& samples);

  DatasetBatches train;
  std::optional<DatasetBatches> held_out;
  PackBounds bounds;  // of both
};

}  // namespace nibble
