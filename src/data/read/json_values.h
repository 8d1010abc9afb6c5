// SPDX-License-Identifier: MIT
// A .json file cut into the values it holds: an array's elements, or values one after another (as
// many files called .json are lines).
#pragma once
#include <string_view>

#include "data/lines.h"

namespace nibble {

// Only brackets and strings are looked at; each value is parsed for itself later. Throws
// FormatError with the line for a text that cannot be cut.
DataUnits split_json(std::string_view text, size_t begin);

}  // namespace nibble
