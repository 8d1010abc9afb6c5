// SPDX-License-Identifier: MIT
// What a run's record says of the model it made.
#pragma once
#include <string>

#include "runlog/run_recorder.h"
#include "runtime/model_origin.h"

namespace nibble {

// Waits for the hashes of what the run has read. `name`, `parent`: of the models.
ModelOrigin trained_origin(RunRecorder& recorder, std::string name, std::string parent);

}  // namespace nibble
