// SPDX-License-Identifier: MIT
// Where tests find things. Strings of one small object file, not macros of every one: so what is
// compiled in one checkout is the same in another, and a compiler cache can lend it.
#pragma once

namespace nibble {

extern const char* const kSourceDir;   // the repository
extern const char* const kNibblePath;  // the program that was built with these tests
extern const char* const kGuardChild;  // tests/guard/guard_child.cpp
extern const char* const kRankChild;   // tests/comm/rank_child.cpp

}  // namespace nibble
