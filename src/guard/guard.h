// SPDX-License-Identifier: MIT
// Runs a program and watches the memory of everything it starts; ends it all when a limit is
// exceeded. The program shares our input, output and terminal.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "guard/gpu_memory.h"

namespace nibble {

constexpr ExitCode kKilledByGuard{124};

struct GuardSettings {
  std::vector<std::string> program;       // name and arguments
  std::optional<int64_t> ram_limit_mib;   // of the whole tree, resident and swapped
  std::optional<int64_t> gpu_limit_mib;   // of the tree, or of all processes on the GPUs together
  std::chrono::duration<double> over{0};  // how long a limit may be exceeded
  std::chrono::duration<double> poll{0.5};
  std::chrono::duration<double> grace{2};    // between SIGTERM and SIGKILL
  std::chrono::duration<double> report{10};  // between lines on usage; 0: none
  std::filesystem::path nvidia_smi;          // empty: GPUs are not watched
  std::optional<GpuReading> gpu_at_start;    // counts until nvidia-smi has been asked again
  // Called when everything has been ended because of a limit, with which and by how much.
  std::function<void(const std::string& reason)> killed;
};

// Returns the program's exit code (128 + signal when one ended it), 124 when a limit ended it.
// Throws UsageError when the program cannot be started. Nothing it started runs on afterwards.
ExitCode run_guarded(const GuardSettings& settings);

}  // namespace nibble
