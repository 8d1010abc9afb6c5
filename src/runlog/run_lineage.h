// SPDX-License-Identifier: MIT
// Which run made which run's input: found by the path that was read, and by the hash of what was
// read where the file has been moved since.
#pragma once
#include <string>
#include <vector>

#include "runlog/run_record.h"

namespace nibble {

struct Lineage {
  std::vector<std::string> ancestors;  // names of runs, the parent first
  std::string origin;                  // the weights the oldest of them read; no run here wrote it
  std::vector<std::string> children;   // runs that read this run's output
};

Lineage lineage_of(const RunRecord& run, const std::vector<RunRecord>& all);

}  // namespace nibble
