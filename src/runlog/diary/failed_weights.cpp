// SPDX-License-Identifier: MIT
#include "runlog/diary/failed_weights.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/utc_time.h"
#include "runlog/diary/prune_log.h"
#include "runlog/diary/run_notes.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

fs::path plain(const fs::path& p) { return fs::absolute(p).lexically_normal(); }

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = plain(path).lexically_relative(plain(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// Why the file is not the one the run wrote; empty: it is.
std::string changed(const RunFile& f) {
  std::error_code ec;
  if (!fs::is_regular_file(f.path, ec)) return f.path + " is not there any more";
  if (f.sha256.empty()) return "no hash of " + f.path + " was recorded: it may be another file";
  if (fs::file_size(f.path, ec) != f.bytes || sha256_file(f.path) != f.sha256) {
    return f.path + " is not what the run wrote any more";
  }
  return "";
}

// A directory that holds a model and nothing else goes as a whole.
bool only_a_model(const fs::path& directory, const std::set<fs::path>& weights) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(directory, ec)) {
    const std::string ending = entry.path().extension().string();
    const bool companion = ending == ".json" || ending == ".jinja" || ending == ".txt";
    if (!entry.is_regular_file(ec)) return false;
    if (!companion && !weights.contains(plain(entry.path()))) return false;
  }
  return !ec;
}

const RunRecord* trained_from(const std::vector<RunRecord>& all,
                              const std::vector<std::string>& chosen,
                              const std::set<fs::path>& weights) {
  for (const RunRecord& r : all) {
    if (std::ranges::find(chosen, r.name) != chosen.end()) continue;
    for (const RunFile* f : r.with_role("weights")) {
      if (weights.contains(plain(f->path))) return &r;
    }
  }
  return nullptr;
}

dev_t disk_of(const fs::path& p) {
  struct stat s {};
  if (::stat(p.c_str(), &s) != 0) throw_format("{}: cannot be looked at", p.string());
  return s.st_dev;
}

}  // namespace

std::vector<FailedWeights> failed_weights(const fs::path& base, const std::vector<RunRecord>& all,
                                          const std::vector<std::string>& chosen) {
  std::vector<FailedWeights> found;
  for (const RunRecord& r : all) {
    const bool goes = std::ranges::find(chosen, r.name) != chosen.end();
    std::error_code ec;
    if (!goes || r.ended_well() || r.status.output.empty()) continue;
    if (lies_in(r.status.output, base / r.name)) continue;  // with its folder
    if (!fs::exists(r.status.output, ec)) continue;
    FailedWeights w{r.name, r.status.output, {}, {}};
    std::set<fs::path> weights;
    for (const RunFile* f : r.with_role("output")) {
      weights.insert(plain(f->path));
      if (w.stays.empty()) w.stays = changed(*f);
    }
    if (weights.empty()) w.stays = "which files the run wrote is not recorded";
    if (const RunRecord* child = trained_from(all, chosen, weights); child && w.stays.empty()) {
      w.stays = fmt::format("{} was trained from it", child->name);
    }
    if (w.stays.empty()) {
      w.files.assign(weights.begin(), weights.end());
      if (fs::is_directory(w.path, ec) && only_a_model(w.path, weights)) w.files = {plain(w.path)};
    }
    found.push_back(std::move(w));
  }
  return found;
}

fs::path move_weights(const fs::path& base, const FailedWeights& w, const fs::path& trash,
                      const std::string& reason) {
  const auto now = std::chrono::system_clock::now();
  const bool same_disk = disk_of(trash) == disk_of(w.path);
  const fs::path to = same_disk ? trash / ("weights-of-" + w.run)
                                : w.path.parent_path() / ".nibble-trash" / utc_stamp(now) / w.run;
  make_directories(to);
  for (const fs::path& file : w.files) {
    rename_durably(file, to / file.filename(), Existing::keep);
    sync_directory(file.parent_path());
    const std::string there = plain(to / file.filename()).string();
    add_note(base / w.run, fmt::format("the exported weights {} were moved to {} (runs prune {})",
                                       file.string(), there, reason));
    add_prune_line(base, {utc_text(now), "weights", file.string(), there, reason, w.run});
  }
  return to;
}

}  // namespace nibble
