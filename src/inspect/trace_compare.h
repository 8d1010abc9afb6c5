// SPDX-License-Identifier: MIT
// Two recordings side by side, for people.
#pragma once
#include <filesystem>
#include <iosfwd>

namespace nibble {

// Prints a line per tensor and a verdict; true when every tensor is within the tolerance.
bool print_comparison(const std::filesystem::path& a, const std::filesystem::path& b,
                      double tolerance, std::ostream& out);

}  // namespace nibble
