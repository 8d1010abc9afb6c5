// SPDX-License-Identifier: MIT
// Scripted conversations: the user turns of a file, or the predecessor's parity scenario.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

// One user turn a line; blank lines and lines starting with # are skipped; "\n" inside a line is a
// newline. FormatError when nothing is left.
std::vector<std::string> read_scenario(const std::filesystem::path& file);

// The eight turns of the predecessor's multi-turn runners, starting with `first`. goes_on: its
// turns [7] and [8], too, which ask once more what [5] asked.
enum class ScenarioEnd { stop_here, goes_on };
std::vector<std::string> predecessor_scenario(const std::string& first,
                                              ScenarioEnd end = ScenarioEnd::stop_here);

}  // namespace nibble
