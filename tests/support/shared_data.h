// SPDX-License-Identifier: MIT
// Where third-party test data lies: $NIBBLE_SHARED, or ../shared beside the checkout. It is not
// part of the repository; a test that needs it and does not find it skips and says so.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/paths.h"

namespace nibble::test {

inline std::filesystem::path shared_dir() {
  if (const char* s = std::getenv("NIBBLE_SHARED")) return s;
  return std::filesystem::path(kSourceDir) / ".." / "shared";
}

}  // namespace nibble::test

// Declares `variable` or skips the test with the reason.
#define NIBBLE_SHARED_FILE_OR_SKIP(variable, relative)                              \
  const std::filesystem::path variable = ::nibble::test::shared_dir() / (relative); \
  if (!std::filesystem::exists(variable))                                           \
  GTEST_SKIP() << variable.string() << " is absent (third-party data; set NIBBLE_SHARED)"
