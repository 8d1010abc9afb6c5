// SPDX-License-Identifier: MIT
// A rank that is not the first: does what rank 0 says until that is the end.
#pragma once
#include "job/setup/train_setup.h"
#include "job/train_job.h"

namespace nibble {

// Micro-batches of a step of this job: --accumulate, and at least one for each rank. Throws
// UsageError when the ranks cannot share them equally.
int64_t micro_batches_of(const TrainJob& job);

void follow(const TrainJob& job, const TrainInputs& inputs, const TrainSetup& setup,
            JobBatches& batches, JobEvents& events);

}  // namespace nibble
