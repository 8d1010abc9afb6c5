// SPDX-License-Identifier: MIT
// First words of texts of many kinds, which a model goes on with when it is asked for text of its
// own: languages, prose, facts, letters, lists, tables, dialogues, mathematics, code.
#pragma once
#include <span>
#include <string_view>

namespace nibble {

std::span<const std::string_view> openings();

}  // namespace nibble
