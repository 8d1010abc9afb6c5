// SPDX-License-Identifier: MIT
// Memory over a training run, phase by phase, in the predecessor's JSON form with our arenas and
// the resident set beside it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/arena.h"

namespace nibble {

// What PidMemoryMiB and TotalMemoryMiB speak of: memory of the GPU (what the run has allocated
// there, and what is in use in all), or RAM where no GPU takes part.
struct MemorySource {
  bool gpu = false;
  ReadDeviceMemory device;  // asked at every sample; empty: there is none
};
// May be asked when the backend is gone.
inline MemorySource memory_source(const Backend& backend) {
  return {!backend.memory_is_host(), backend.device_memory_reader()};
}

struct MemorySample {
  std::string timestamp_utc;
  int64_t epoch = 0, step_in_epoch = 0, global_step = 0;
  std::string phase;
  int64_t pid_mib = 0;    // of this process
  int64_t total_mib = 0;  // of all processes
  int64_t rss_mib = 0;    // resident set of this process
};

class MemoryReport {
 public:
  explicit MemoryReport(MemorySource source = {});
  void set_source(MemorySource source) { source_ = std::move(source); }  // once the device is known

  void sample(std::string_view phase, int64_t epoch, int64_t step_in_epoch, int64_t global_step);
  void set_arenas(const std::vector<Arena*>& arenas);  // as they are now
  std::string json() const;
  void write(const std::filesystem::path& file) const;  // makes its directory; throws FormatError
  const std::vector<MemorySample>& samples() const { return samples_; }
  bool of_gpu() const { return source_.gpu; }
  const std::optional<MemorySample>& peak() const { return peak_; }
  struct ArenaSize {
    std::string name;
    size_t bytes = 0, peak_bytes = 0;
  };
  const std::vector<ArenaSize>& arena_sizes() const { return arenas_; }

 private:
  void fill(MemorySample& sample) const;
  void thin_out();

  MemorySource source_;
  std::string created_utc_;
  std::vector<MemorySample> samples_;
  int64_t every_steps_ = 1;  // a long run keeps the samples of every second, fourth, ... step
  std::optional<MemorySample> peak_;
  std::vector<ArenaSize> arenas_;
};

}  // namespace nibble
