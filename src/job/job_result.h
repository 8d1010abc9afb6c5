// SPDX-License-Identifier: MIT
// How a job came out. What keeps it from running at all is thrown (core/error.h).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nibble {

enum class JobEnd {
  finished,
  interrupted,  // at a checkpoint, from which it can go on
  collapsed,    // nothing was exported
  failed,       // it was exported, but its self-test or its probes did not pass
};

struct JobResult {
  JobEnd end = JobEnd::finished;
  int64_t steps = 0;             // done in all
  std::filesystem::path folder;  // of the run
  std::filesystem::path output;  // the trained model; empty: none was written
  std::vector<std::string> problems;
  bool ok() const { return end == JobEnd::finished || end == JobEnd::interrupted; }
};

}  // namespace nibble
