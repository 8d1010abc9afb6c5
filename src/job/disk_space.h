// SPDX-License-Identifier: MIT
// Whether what a run will write fits on the disk: asked before its first step.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

struct SpaceNeed {
  std::string what;             // "the trained model"
  std::filesystem::path where;  // need not exist yet
  uint64_t bytes = 0;
};

// Needs on one file system are added up. Throws FormatError that says what is needed where and
// what is free. A file system that does not say how much it has free is not asked.
void check_space(const std::vector<SpaceNeed>& needs);

}  // namespace nibble
