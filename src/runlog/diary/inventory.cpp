// SPDX-License-Identifier: MIT
#include "runlog/diary/inventory.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/memory_info.h"
#include "runlog/diary/markdown.h"
#include "runlog/diary/prune_log.h"
#include "runlog/diary/run_notes.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string where_is(const std::string& path, uint64_t bytes,
                     const std::vector<PruneLine>& pruned) {
  std::error_code ec;
  if (fs::exists(path, ec)) {
    const bool other =
        fs::is_regular_file(path, ec) && bytes > 0 && fs::file_size(path, ec) != bytes;
    return other ? "changed: it has another size now" : "there";
  }
  for (auto it = pruned.rbegin(); it != pruned.rend(); ++it) {
    if (it->what == "weights" && it->name == path) return "in the trash: " + it->to;
  }
  return "missing";
}

std::string joined_paths(const RunRecord& r, const char* role) {
  std::string out;
  for (const RunFile* f : r.with_role(role)) out += (out.empty() ? "" : ", ") + f->path;
  return out;
}

std::string made_of(const RunRecord& r, const std::vector<RunRecord>& runs) {
  std::string out = joined_paths(r, "weights");
  for (const RunRecord& other : runs) {
    for (const RunFile* f : r.with_role("weights")) {
      for (const RunFile* o : other.with_role("output")) {
        if (o->path == f->path) return fmt::format("{} (of {})", out, other.name);
      }
    }
  }
  return out;
}

std::string good_for(const RunRecord& r, const std::vector<RunNote>& notes) {
  for (auto it = notes.rbegin(); it != notes.rend(); ++it) {
    if (it->kind == NoteKind::good_for) return it->text;
  }
  if (!r.ended_well()) {
    return "nothing: " + r.state_name() + (r.status.message.empty() ? "" : ", " + r.status.message);
  }
  return notes.empty() ? "" : notes.front().text;  // what it was made for
}

std::string scores_of(const RunRecord& r) {
  std::string out;
  if (!r.gates.empty()) {
    for (const GateScore& g : r.gates.back().groups) {
      out += fmt::format("{}{} {}/{}", out.empty() ? "" : ", ", g.group, g.passed, g.total);
    }
  }
  const auto add = [&](const char* name, double v) {
    if (std::isfinite(v)) out += fmt::format("{}{} {:.4f}", out.empty() ? "" : ", ", name, v);
  };
  add("loss", r.status.last.loss);
  if (r.status.held_out_step > 0) add("held out", r.status.held_out_loss);
  return out;
}

}  // namespace

std::vector<InventoryRow> inventory(const fs::path& base, const std::vector<RunRecord>& runs) {
  const std::vector<PruneLine> pruned = read_prune_log(base);
  std::vector<InventoryRow> given, made;
  std::set<std::string> written, seen;
  for (const RunRecord& r : runs) {
    for (const RunFile* f : r.with_role("output")) written.insert(f->path);
  }
  for (const RunRecord& r : runs) {
    for (const RunFile* f : r.with_role("weights")) {
      if (written.contains(f->path) || !seen.insert(f->path).second) continue;
      given.push_back({f->path, "given", "", "", "", "", where_is(f->path, f->bytes, pruned),
                       f->bytes, f->sha256});
    }
    const std::vector<RunNote> notes = read_notes(base / r.name);
    for (const RunFile* f : r.with_role("output")) {
      made.push_back({f->path, fmt::format("{} run {}", r.status.command, r.name), made_of(r, runs),
                      joined_paths(r, "train-data"), good_for(r, notes), scores_of(r),
                      where_is(f->path, f->bytes, pruned), f->bytes, f->sha256});
    }
  }
  // Of runs that are in the trash themselves.
  for (const PruneLine& p : pruned) {
    if (p.what != "weights" || written.contains(p.name)) continue;
    made.push_back({p.name, "run " + p.run, "", "", "nothing: pruned, " + p.reason, "",
                    "in the trash: " + p.to, 0, ""});
  }
  given.insert(given.end(), made.begin(), made.end());
  return given;
}

std::string inventory_markdown(const std::vector<InventoryRow>& rows) {
  std::string out =
      "# Weight files\n\n| file | what | made from | taught | good for | scores | size | where |\n"
      "|---|---|---|---|---|---|---|---|\n";
  const auto cell = [](const std::string& s) { return s.empty() ? "-" : markdown_text(s); };
  for (const InventoryRow& r : rows) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", markdown_code(r.path),
                       cell(r.what), cell(r.made_from), cell(r.data), cell(r.good_for),
                       cell(r.scores), r.bytes > 0 ? format_bytes(r.bytes) : "-", cell(r.where));
  }
  return out;
}

std::string inventory_json(const std::vector<InventoryRow>& rows) {
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (const InventoryRow& r : rows) {
    j.push_back({{"path", r.path},
                 {"what", r.what},
                 {"made_from", r.made_from},
                 {"train_data", r.data},
                 {"good_for", r.good_for},
                 {"scores", r.scores},
                 {"where", r.where},
                 {"bytes", r.bytes},
                 {"sha256",
                  r.sha256.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(r.sha256)}});
  }
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace nibble
