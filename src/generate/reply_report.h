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
// Logs that a reply was not at its end when it had --max-tokens tokens or the context was full, and
// which number would help; `most` positions the model knows.
void report_cut(FinishReason reason, int64_t max_tokens, int64_t context, int64_t most);
// Logs why a reply ended early where that needs an explanation; check_failed for a broken model.
ExitCode report_finish(FinishReason reason);

}  // namespace nibble
