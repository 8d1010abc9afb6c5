// SPDX-License-Identifier: MIT
// What of nibble this is: the version of the project and the commit it was built from.
#pragma once
#include <string>

namespace nibble {

extern const char* const kVersion;     // "0.1.0"
extern const char* const kCommit;      // "abc1234", "abc1234-changed" or "unknown"
extern const char* const kCommitDate;  // "2026-02-26" or ""

std::string version_line();  // "nibble 0.1.0 (commit abc1234)"

}  // namespace nibble
