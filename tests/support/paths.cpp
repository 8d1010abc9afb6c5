// SPDX-License-Identifier: MIT
#include "support/paths.h"

namespace nibble {

const char* const kSourceDir = NIBBLE_SOURCE_DIR;
const char* const kNibblePath = NIBBLE_BINARY;
const char* const kGuardChild = NIBBLE_GUARD_CHILD;

}  // namespace nibble
