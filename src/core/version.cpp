// SPDX-License-Identifier: MIT
#include "core/version.h"

namespace nibble {

const char* const kVersion = NIBBLE_VERSION;

std::string version_line() {
  return std::string("nibble ") + kVersion + " (commit " + kCommit + ")";
}

}  // namespace nibble
