// SPDX-License-Identifier: MIT
#include "runlog/run_prune.h"

#include <algorithm>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/utc_time.h"
#include "runlog/chain_record.h"
#include "runlog/diary/prune_log.h"
#include "runlog/run_folder.h"
#include "runlog/run_status.h"

namespace nibble {

namespace fs = std::filesystem;

std::vector<std::string> choose_for_pruning(const std::vector<RunRecord>& runs,
                                            const PruneRules& rules) {
  for (const std::string& name : rules.names) {
    const auto it = std::ranges::find(runs, name, &RunRecord::name);
    if (it == runs.end()) throw_format("there is no run {} to prune", name);
    if (it->pinned) throw_usage("{} is pinned: nibble runs unpin {} allows it to go", name, name);
    if (it->status.state == RunState::running && !it->gone) {
      throw_usage("{} is running: it cannot be pruned", name);
    }
  }
  const auto now = std::chrono::system_clock::now();
  std::vector<std::string> chosen;
  for (const RunRecord& r : runs) {
    const bool running = r.status.state == RunState::running && !r.gone;
    if (r.pinned || running) continue;
    if (!rules.names.empty() && std::ranges::find(rules.names, r.name) == rules.names.end()) {
      continue;
    }
    if (rules.failed_only && r.status.state == RunState::finished) continue;
    if (rules.older_than_days) {
      const auto started = parse_utc(r.status.started_utc);
      const double days =
          started ? std::chrono::duration<double>(now - *started).count() / 86400 : 0;
      if (days < *rules.older_than_days) continue;
    }
    chosen.push_back(r.name);
  }
  const size_t kept = size_t(std::max<int64_t>(0, rules.keep.value_or(0)));
  chosen.resize(chosen.size() - std::min(chosen.size(), kept));
  return chosen;
}

std::vector<std::string> chains_without_runs(const fs::path& base,
                                             const std::vector<std::string>& names,
                                             const PruneRules& rules) {
  const auto goes = [&](const std::string& run) {
    return std::ranges::find(names, run) != names.end();
  };
  std::vector<std::string> chains;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(base, ec)) {
    ChainRecord chain;
    try {
      chain = read_chain(entry.path() / "chain.json");
    } catch (const Error&) {
      continue;  // a run, or something else
    }
    const bool running = chain.process.state == RunState::running &&
                         process_state(entry.path(), chain.process) != ProcessState::gone;
    if (running) continue;
    bool had_runs = false, loses = false, keeps = false;
    for (const StageRecord& stage : chain.stages) {
      for (const std::string& run : stage.runs) {
        had_runs = true;
        loses = loses || goes(run);
        keeps = keeps || (!goes(run) && fs::exists(base / run, ec));
      }
    }
    if (!had_runs || keeps || (!rules.names.empty() && !loses)) continue;
    chains.push_back(entry.path().filename().string());
  }
  std::ranges::sort(chains);
  return chains;
}

fs::path move_to_trash(const fs::path& base, const std::vector<std::string>& names,
                       const std::vector<std::string>& chains, const std::string& reason,
                       const std::vector<FailedWeights>& weights) {
  const auto now = std::chrono::system_clock::now();
  const fs::path trash = create_run_folder(base / ".trash", utc_stamp(now));
  // Before the runs, which get a note of it.
  for (const FailedWeights& w : weights) {
    if (w.stays.empty()) move_weights(base, w, trash, reason);
  }
  const auto move = [&](const char* what, const std::string& name) {
    const fs::path from = base / name, to = trash / name;
    rename_durably(from, to, Existing::keep);
    sync_directory(base);
    add_prune_line(
        base, {utc_text(now), what, name, fs::absolute(to).lexically_normal().string(), reason});
  };
  for (const std::string& name : names) move("run", name);
  for (const std::string& name : chains) move("chain", name);
  return trash;
}

}  // namespace nibble
