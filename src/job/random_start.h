// SPDX-License-Identifier: MIT
// Pretraining starts from random weights, which are a file like any other: so a run can be repeated
// and resumed (its identity is checked then).
#pragma once
#include <filesystem>

#include "job/train_job.h"

namespace nibble {

// The job with its model: the weights of `init_file` where that exists, new ones of the shape of
// job.model.config otherwise; an empty path stands for a file beside the output. One of an earlier
// run is not taken for this one's by mistake. Throws UsageError, FormatError.
TrainJob with_random_start(TrainJob job, const std::filesystem::path& init_file);

}  // namespace nibble
