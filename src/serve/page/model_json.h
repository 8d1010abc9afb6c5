// SPDX-License-Identifier: MIT
// What the page says of a model: its shape, how it is held, memory, speed now; and its tensors with
// what quantisation cost.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "serve/api/running_model.h"

namespace nibble {

nlohmann::ordered_json model_json(const RunningModel& model);
// This process and this machine.
nlohmann::ordered_json machine_json();
// Reads every tensor of the file: seconds for a large one.
nlohmann::ordered_json tensors_json(const RunningModel& model);

}  // namespace nibble
