// SPDX-License-Identifier: MIT
// nibble runs note, export, inventory and prune: what is written down about runs.
#include <algorithm>
#include <ostream>

#include "apps/runs/runs_actions.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text/visible.h"
#include "runlog/diary/diary.h"
#include "runlog/diary/failed_weights.h"
#include "runlog/diary/inventory.h"
#include "runlog/diary/prune_log.h"
#include "runlog/diary/run_notes.h"
#include "runlog/json/run_json.h"
#include "runlog/run_folder.h"
#include "runlog/run_prune.h"
#include "runlog/run_tables.h"

namespace nibble {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

void append_diary(const RunsOptions& o, const std::vector<RunRecord>& runs, Io& io) {
  const size_t n = append_to_diary(o.append, diary_entries(o.runs_dir, runs));
  if (o.json) return;
  io.out << fmt::format("{} {} added to {}\n", n, n == 1 ? "entry" : "entries", o.append.string());
  for (const RunRecord& r : runs) {
    if (r.status.state == RunState::running && !r.gone) {
      io.out << fmt::format("{} goes on: it is added when it has ended\n", visible_line(r.name));
    }
  }
}

std::vector<RunRecord> records_of(const std::vector<RunRecord>& all,
                                  const std::vector<std::string>& names) {
  std::vector<RunRecord> records;
  for (const RunRecord& r : all) {
    if (std::ranges::find(names, r.name) != names.end()) records.push_back(r);
  }
  return records;
}

ordered_json weights_json(const std::vector<FailedWeights>& weights) {
  ordered_json j = ordered_json::array();
  for (const FailedWeights& w : weights) {
    j.push_back({{"run", w.run},
                 {"path", w.path.string()},
                 {"stays", w.stays.empty() ? ordered_json() : ordered_json(w.stays)}});
  }
  return j;
}

}  // namespace

std::string runs_text(size_t n) { return n == 1 ? "1 run" : fmt::format("{} runs", n); }

fs::path base_of(const fs::path& folder) {
  return fs::absolute(folder).lexically_normal().parent_path();
}

std::string dumped(const ordered_json& j) {
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<RunRecord> chosen_runs(const RunsOptions& o) {
  std::vector<RunRecord> list;
  if (!o.runs.empty()) {
    for (const std::string& name : o.runs) list.push_back(read_record(find_run(o.runs_dir, name)));
    return list;
  }
  for (RunRecord& r : read_records(o.runs_dir)) {
    const bool wanted = (o.state.empty() || r.state_name() == o.state) &&
                        (o.command.empty() || r.status.command == o.command) &&
                        r.name.find(o.name) != std::string::npos;
    if (wanted) list.push_back(std::move(r));
  }
  if (o.last && list.size() > size_t(*o.last)) list.erase(list.begin(), list.end() - *o.last);
  return list;
}

Overwrite overwrite_of(const RunsOptions& o) {
  return o.force ? Overwrite::allow : Overwrite::refuse;
}

ExitCode export_runs(const RunsOptions& o, Io& io) {
  if (!o.append.empty()) {
    if (o.markdown || o.json || !o.out.empty()) {
      throw_usage(
          "runs export --append writes a diary by itself: leave out --markdown, --json, --out");
    }
    append_diary(o, chosen_runs(o), io);
    return ExitCode::ok;
  }
  if (o.markdown == o.json) throw_usage("runs export: say --markdown, --json or --append FILE");
  check_output_file(o.out, overwrite_of(o));
  const std::vector<RunRecord> list = chosen_runs(o);
  std::string text;
  if (o.json) {
    ordered_json j = ordered_json::array();
    for (const RunRecord& r : list) j.push_back(full_json(r, o.runs_dir / r.name));
    text = dumped(j);
  } else {
    const std::vector<RunRecord> all = read_records(o.runs_dir);
    text = "# Runs\n\n";
    for (const RunRecord& r : list) {
      const fs::path folder = find_run(o.runs_dir, r.name);
      text += run_markdown(r, lineage_of(r, all), read_replies(folder));
    }
    text.pop_back();  // one line end is enough
  }
  if (o.out.empty()) {
    io.out << text;
    return ExitCode::ok;
  }
  replace_file(o.out, text, existing_file(overwrite_of(o)));
  io.out << fmt::format("{} written to {}\n", runs_text(list.size()), o.out.string());
  return ExitCode::ok;
}

ExitCode note_run(const RunsOptions& o, Io& io) {
  const fs::path folder = find_run(o.runs_dir, o.runs[0]);
  add_note(folder, o.runs[1], o.good_for ? NoteKind::good_for : NoteKind::remark);
  io.out << fmt::format("noted in {}\n", (folder / kNotesFile).string());
  return ExitCode::ok;
}

ExitCode show_inventory(const RunsOptions& o, Io& io) {
  if (o.markdown && o.json) throw_usage("runs inventory: --markdown or --json, not both");
  check_output_file(o.out, overwrite_of(o));
  const std::vector<InventoryRow> rows = inventory(o.runs_dir, read_records(o.runs_dir));
  const std::string text = o.json ? inventory_json(rows) : inventory_markdown(rows);
  if (o.out.empty()) {
    io.out << text;
    return ExitCode::ok;
  }
  replace_file(o.out, text, existing_file(overwrite_of(o)));
  io.out << fmt::format("{} weight files written to {}\n", rows.size(), o.out.string());
  return ExitCode::ok;
}

ExitCode prune_runs(const RunsOptions& o, Io& io) {
  PruneRules rules = o.prune;
  for (const std::string& name : o.runs) {
    const fs::path folder = find_run(o.runs_dir, name);
    if (!same_file(base_of(folder), o.runs_dir)) {
      throw_usage("{} is not in {}: --runs-dir says which runs may go", folder.string(),
                  o.runs_dir.string());
    }
    rules.names.push_back(read_record(folder).name);
  }
  if (rules.names.empty() && !rules.older_than_days && !rules.keep && !rules.failed_only) {
    throw_usage("runs prune: say which: names of runs, --older-than, --keep or --failed");
  }
  const std::vector<RunRecord> all = read_records(o.runs_dir);
  const std::vector<std::string> chosen = choose_for_pruning(all, rules);
  const std::vector<std::string> chains = chains_without_runs(o.runs_dir, chosen, rules);
  const bool nothing = chosen.empty() && chains.empty();
  const std::vector<FailedWeights> weights = failed_weights(o.runs_dir, all, chosen);
  fs::path trash;
  if (o.yes && !nothing) {
    std::string reason;
    if (!o.runs.empty()) reason += " by name";
    if (rules.older_than_days) reason += fmt::format(" --older-than {:g}", *rules.older_than_days);
    if (rules.keep) reason += fmt::format(" --keep {}", *rules.keep);
    if (rules.failed_only) reason += " --failed";
    // What they were is written down while it is still here.
    if (!o.append.empty()) append_diary(o, records_of(all, chosen), io);
    trash = move_to_trash(o.runs_dir, chosen, chains, reason.substr(1), weights);
    if (!o.append.empty()) append_diary(o, {}, io);
  }
  if (o.json) {
    io.out << dumped({{"runs", chosen},
                      {"chains", chains},
                      {"weights", weights_json(weights)},
                      {"moved", !trash.empty()},
                      {"trash", trash.empty() ? ordered_json() : ordered_json(trash.string())}});
    return ExitCode::ok;
  }
  for (const std::string& name : chosen) io.out << name << "\n";
  for (const std::string& name : chains) io.out << name << " (a chain without runs)\n";
  for (const FailedWeights& w : weights) {
    io.out << visible_line(w.stays.empty()
                               ? fmt::format("{} (weights of {})", w.path.string(), w.run)
                               : fmt::format("{} stays: {}", w.path.string(), w.stays))
           << "\n";
  }
  std::string count = runs_text(chosen.size());
  if (!chains.empty()) {
    count += fmt::format(" and {} chain{}", chains.size(), chains.size() == 1 ? "" : "s");
  }
  if (nothing) {
    io.out << "nothing to prune\n";
  } else if (trash.empty()) {
    io.out << fmt::format("{} would be moved to {}; --yes does it\n", count,
                          (o.runs_dir / ".trash").string());
  } else {
    io.out << fmt::format("{} moved to {}\n", count, trash.string());
    for (const PruneLine& p : read_prune_log(o.runs_dir)) {
      const bool now = std::ranges::find(chosen, p.run) != chosen.end();
      if (p.what == "weights" && now) {
        io.out << fmt::format("{} moved to {}\n", visible_line(p.name), visible_line(p.to));
      }
    }
  }
  return ExitCode::ok;
}

}  // namespace nibble
