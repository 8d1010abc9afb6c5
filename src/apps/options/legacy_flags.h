// SPDX-License-Identifier: MIT
// The flags of nibble's predecessor and what stands in their place, for users who type them from
// habit. docs/migration.md is the readable form; a test keeps the two in step.
#pragma once
#include <span>
#include <string_view>

namespace nibble {

struct LegacyFlag {
  std::string_view flag;
  std::string_view instead;  // completes "--flag: not in nibble; ..."
  bool boolean = false;      // its value was true or false, or left out
};

std::span<const LegacyFlag> legacy_flags();
const LegacyFlag* find_legacy_flag(std::string_view flag);  // null when there is none

}  // namespace nibble
