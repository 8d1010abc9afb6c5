// SPDX-License-Identifier: MIT
// Memory over a training run, phase by phase, in the predecessor's JSON form with our arenas and
// the resident set beside it.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/gpu_memory.h"
#include "train/memory.h"

namespace nibble {

// What PidMemoryMiB and TotalMemoryMiB speak of: GPU memory, or RAM where no GPU takes part.
enum class MemorySource { host, gpu };

struct MemorySample {
  std::string timestamp_utc;
  int64_t epoch = 0, step_in_epoch = 0, global_step = 0;
  std::string phase;
  int64_t pid_mib = 0;    // of this process
  int64_t total_mib = 0;  // of all processes
  int64_t rss_mib = 0;    // resident set of this process
};

// Numbers of this moment. nvidia-smi takes some 50 ms: a reading younger than `refresh` is used
// again. A GPU that cannot be read counts as 0.
class MemorySampler {
 public:
  explicit MemorySampler(MemorySource source, std::chrono::milliseconds refresh);
  void fill(MemorySample& sample);

 private:
  MemorySource source_;
  std::chrono::milliseconds refresh_;
  std::filesystem::path nvidia_smi_;
  std::optional<GpuReading> reading_;
  std::chrono::steady_clock::time_point read_at_{};
};

class MemoryReport {
 public:
  explicit MemoryReport(MemorySource source = MemorySource::host,
                        std::chrono::milliseconds refresh = std::chrono::milliseconds(0));

  void sample(std::string_view phase, int64_t epoch, int64_t step_in_epoch, int64_t global_step);
  void set_arenas(TrainArenas& arenas);  // as they are now
  std::string json() const;
  void write(const std::filesystem::path& file) const;  // makes its directory; throws FormatError
  const std::vector<MemorySample>& samples() const { return samples_; }

 private:
  void thin_out();

  struct ArenaSize {
    std::string name;
    size_t bytes = 0, peak_bytes = 0;
  };
  MemorySource source_;
  MemorySampler sampler_;
  std::string created_utc_;
  std::vector<MemorySample> samples_;
  int64_t every_steps_ = 1;  // a long run keeps the samples of every second, fourth, ... step
  std::optional<MemorySample> peak_;
  std::vector<ArenaSize> arenas_;
};

}  // namespace nibble
