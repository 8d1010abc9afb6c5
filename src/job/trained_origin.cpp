// SPDX-License-Identifier: MIT
#include "job/trained_origin.h"

#include <cmath>

#include "runlog/run_series.h"

namespace nibble {

ModelOrigin trained_origin(RunRecorder& recorder, std::string name, std::string parent) {
  ModelOrigin origin;
  origin.name = std::move(name);
  origin.parent = std::move(parent);
  origin.trained = true;
  const StepRecord& last = recorder.last_step();
  std::string fact = fmt::format("{} steps", last.step);
  if (std::isfinite(last.loss)) fact += fmt::format(", loss of the last {:.4f}", last.loss);
  origin.facts.push_back(fact);
  for (const RunFile& f : recorder.files()) {
    if (f.role == "output") continue;
    recorder.hash_of(f.role);  // fills it in
    // A name, not a path: whose machine it was is nobody's business.
    const std::string file = std::filesystem::path(f.path).filename().string();
    origin.files.push_back({f.role, file, f.sha256});
  }
  const std::vector<GateScores> gates = read_gates(recorder.directory());
  if (gates.empty()) return origin;
  for (const GateScore& g : gates.back().groups) {
    origin.scores.push_back(fmt::format("{}: {} of {} probes after step {}", g.group, g.passed,
                                        g.total, gates.back().step));
  }
  return origin;
}

}  // namespace nibble
