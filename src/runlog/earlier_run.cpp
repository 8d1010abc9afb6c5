// SPDX-License-Identifier: MIT
#include "runlog/earlier_run.h"

#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "runlog/run_folder.h"
#include "runlog/run_status.h"

namespace nibble {

namespace fs = std::filesystem;

fs::path run_of_checkpoint(const fs::path& checkpoint, const fs::path& runs_dir,
                           const fs::path& except) {
  const fs::path place = fs::absolute(checkpoint).lexically_normal().parent_path();
  // <run>/checkpoints, or <run>/checkpoints/good of a run that goes back.
  for (const fs::path& folder : {place.parent_path(), place.parent_path().parent_path()}) {
    std::error_code ec;
    const bool run = fs::exists(folder / "status.json", ec);
    if (run && !same_file(folder, except)) return folder;
  }
  fs::path newest;
  std::error_code none;
  if (!fs::is_directory(runs_dir, none)) return newest;
  for (const fs::path& folder : list_runs(runs_dir)) {
    if (same_file(folder, except)) continue;
    const RunStatus status = read_status(folder);
    if (status.checkpoint.empty()) continue;
    const fs::path saved_in = fs::path(status.checkpoint).lexically_normal().parent_path();
    if (saved_in == place || saved_in == place.parent_path()) newest = folder;  // oldest first
  }
  return newest;
}

void for_each_line_up_to(const fs::path& file, int64_t step,
                         const std::function<void(const std::string&)>& use) {
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return;
  std::ifstream in(file, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const auto j = parse_json_or_discard<nlohmann::json>(line);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer()) continue;
    if (j["step"].get<int64_t>() <= step) use(line);
  }
}

}  // namespace nibble
