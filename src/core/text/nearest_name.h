// SPDX-License-Identifier: MIT
// What somebody may have meant who wrote a name that does not exist.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// The nearest of `candidates` by edit distance, or "" when nothing is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace nibble
