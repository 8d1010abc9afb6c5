// SPDX-License-Identifier: MIT
#include "apps/run_prune.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/run_folder.h"
#include "apps/utc_time.h"
#include "core/error.h"
#include "core/file.h"

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

fs::path move_to_trash(const fs::path& base, const std::vector<std::string>& names,
                       const std::string& reason) {
  const auto now = std::chrono::system_clock::now();
  const fs::path trash = create_run_folder(base / ".trash", utc_stamp(now));
  for (const std::string& name : names) {
    const fs::path from = base / name, to = trash / name;
    std::error_code ec;
    fs::rename(from, to, ec);
    if (ec) throw_format("cannot move {} to {}: {}", from.string(), to.string(), ec.message());
    const nlohmann::ordered_json line = {{"time_utc", utc_text(now)},
                                         {"run", name},
                                         {"to", fs::absolute(to).lexically_normal().string()},
                                         {"reason", reason}};
    std::ofstream log(base / "prune.jsonl", std::ios::app);
    log << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    if (!log) throw_format("cannot write {}", (base / "prune.jsonl").string());
  }
  return trash;
}

}  // namespace nibble
