// SPDX-License-Identifier: MIT
// Texts with choices and values in them: "[a|b]" is a choice, "{name}" a value.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "data/draw.h"

namespace nibble {

using Row = std::map<std::string, std::string, std::less<>>;  // value by name

// Choices made, values put in; "a" before a vowel becomes "an".
std::string expand(std::string_view text, const Row& row, Draw& draw);

}  // namespace nibble
