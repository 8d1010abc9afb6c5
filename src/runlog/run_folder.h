// SPDX-License-Identifier: MIT
// Where runs are recorded: one folder each under a common one. run_recorder.h writes them.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct RunFolderOptions {
  std::filesystem::path runs_dir = "nibble-runs";
  std::string run_name;
  std::string note;  // why it is made: the first note of the run (diary/run_notes.h)
};

// A new folder in `base` (made when it does not exist) named `name`, or with -2, -3, ... after it
// when that exists: nothing is ever overwritten. Throws UsageError or FormatError.
std::filesystem::path create_run_folder(const std::filesystem::path& base, const std::string& name);
// The same with the name the options give, or "20260226T101112Z-train", and their note.
std::filesystem::path create_run_folder(const RunFolderOptions& options, std::string_view command);

// The run folders in `base`, the oldest first. What cannot be read as a run is left out.
std::vector<std::filesystem::path> list_runs(const std::filesystem::path& base);
// A run by its folder, by its name in `base`, or "latest". Throws FormatError when there is none.
std::filesystem::path find_run(const std::filesystem::path& base, const std::string& name);

}  // namespace nibble
