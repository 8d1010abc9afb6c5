// SPDX-License-Identifier: MIT
// What came of a lesson, from the record of its run: scores before and after, which other answers
// changed, and what the comparison with the base says.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace nibble {

// {"replies": [...], "taught": {"passed", "total"}, "kept": {"same", "total"}, "other": ...}:
// taught by the rules of the probes; the others by whether the reply at the last gate is that at
// the first.
nlohmann::ordered_json lesson_scores(const std::filesystem::path& run);

// The model's own words before the training, as a text to measure on: what was asked and replied at
// the first gate. False: there are none.
bool write_measured_text(const std::filesystem::path& run, const std::filesystem::path& file);
// {"divergence", "agreement", "base_loss", "loss", "tokens"} of what `check --json` wrote; null:
// there is nothing.
nlohmann::ordered_json damage_json(const std::filesystem::path& check);

}  // namespace nibble
