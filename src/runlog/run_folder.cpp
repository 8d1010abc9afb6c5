// SPDX-License-Identifier: MIT
#include "runlog/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/log.h"
#include "core/utc_time.h"
#include "runlog/diary/run_notes.h"
#include "runlog/run_status.h"

namespace nibble {

namespace fs = std::filesystem;

fs::path create_run_folder(const fs::path& base, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name != "latest" &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain) throw_usage("'{}' cannot be the name of a run: it must be a plain file name", name);
  make_directories(base);
  constexpr int kMostOfOneName = 10000;
  for (int i = 1; i <= kMostOfOneName; ++i) {
    const fs::path folder = base / (i == 1 ? name : fmt::format("{}-{}", name, i));
    if (::mkdir(folder.c_str(), 0755) == 0) {
      sync_directory(base);
      return folder;
    }
    if (errno != EEXIST) {
      throw_format("cannot make the run's folder {}: {}", folder.string(), std::strerror(errno));
    }
  }
  throw_format("{}: too many runs are named {}", base.string(), name);
}

fs::path create_run_folder(const RunFolderOptions& options, std::string_view command) {
  const std::string stamped =
      fmt::format("{}-{}", utc_stamp(std::chrono::system_clock::now()), command);
  const fs::path folder =
      create_run_folder(options.runs_dir, options.run_name.empty() ? stamped : options.run_name);
  if (!options.note.empty()) add_note(folder, options.note);
  return folder;
}

std::vector<fs::path> list_runs(const fs::path& base) {
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(base, ec)) {
    try {
      found.emplace_back(read_status(entry.path()).started_utc, entry.path());
    } catch (const Error& e) {
      // Something else may lie there, too; a run that cannot be read is in nobody's way.
      if (fs::exists(entry.path() / "status.json", ec)) log_warning("left out: {}", e.what());
    }
  }
  std::ranges::sort(found);
  std::vector<fs::path> runs;
  for (auto& [started, path] : found) runs.push_back(std::move(path));
  return runs;
}

fs::path find_run(const fs::path& base, const std::string& name) {
  if (name == "latest") {
    const std::vector<fs::path> runs = list_runs(base);
    if (runs.empty()) {
      throw_format("there is no run in {}; --runs-dir says where to look", base.string());
    }
    return runs.back();
  }
  std::error_code ec;
  for (const fs::path& candidate : {base / name, fs::path(name)}) {
    if (fs::exists(candidate / "status.json", ec)) return candidate;
  }
  throw_format("there is no run {}, neither in {} nor as a folder of that path", name,
               base.string());
}

}  // namespace nibble
