// SPDX-License-Identifier: MIT
// What is said about a reply beside its text: speed, and whether the model looks broken.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "generate/generator.h"

namespace nibble {

std::string timing_line(const GenerateTiming& timing);
std::string ids_text(const std::vector<int32_t>& ids);  // "1,2,3"
// Logs why a reply ended early where that needs an explanation; check_failed for a broken model.
ExitCode report_finish(FinishReason reason);

}  // namespace nibble
