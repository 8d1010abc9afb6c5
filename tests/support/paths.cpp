// SPDX-License-Identifier: MIT
#include "support/paths.h"

namespace nibble {

const char* const kSourceDir = NIBBLE_SOURCE_DIR;
const char* const kNibblePath = NIBBLE_BINARY;
const char* const kGuardChild = NIBBLE_GUARD_CHILD;
const char* const kRankChild = NIBBLE_RANK_CHILD;

}  // namespace nibble
