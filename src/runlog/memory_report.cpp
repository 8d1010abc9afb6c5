// SPDX-License-Identifier: MIT
#include "runlog/memory_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/utc_time.h"

namespace nibble {
namespace {

constexpr size_t kMostSamples = 4096;
int64_t mib(uint64_t bytes) { return int64_t(bytes >> 20); }

nlohmann::ordered_json sample_json(const MemorySample& s) {
  return {
      {"TimestampUtc", s.timestamp_utc}, {"Epoch", s.epoch},       {"StepInEpoch", s.step_in_epoch},
      {"GlobalStep", s.global_step},     {"Phase", s.phase},       {"PidMemoryMiB", s.pid_mib},
      {"TotalMemoryMiB", s.total_mib},   {"ProcRssMiB", s.rss_mib}};
}

}  // namespace

void MemoryReport::fill(MemorySample& sample) const {
  sample.rss_mib = mib(process_resident_bytes());
  const DeviceMemory device = source_.device ? source_.device() : DeviceMemory();
  if (!source_.gpu) {
    const MemoryInfo system = system_memory();
    // Where CPU and GPU share memory, what the GPU was given may not count as the process's.
    sample.pid_mib = sample.rss_mib + mib(device.bytes);
    sample.total_mib =
        mib(system.total_bytes - std::min(system.available_bytes, system.total_bytes));
    return;
  }
  sample.pid_mib = mib(device.bytes);
  sample.total_mib = mib(device.used_by_all);
}

MemoryReport::MemoryReport(MemorySource source)
    : source_(std::move(source)), created_utc_(utc_now_text()) {
  samples_.reserve(kMostSamples);
}

void MemoryReport::sample(std::string_view phase, int64_t epoch, int64_t step_in_epoch,
                          int64_t global_step) {
  MemorySample s;
  s.timestamp_utc = utc_now_text();
  s.epoch = epoch;
  s.step_in_epoch = step_in_epoch;
  s.global_step = global_step;
  s.phase = phase;
  fill(s);
  log_debug("[TrainVRAM] phase={} epoch={} stepInEpoch={} globalStep={} pid={}MiB total={}MiB",
            s.phase, epoch, step_in_epoch, global_step, s.pid_mib, s.total_mib);
  const auto load = [](const MemorySample& m) { return m.pid_mib; };
  if (!peak_ || load(s) > load(*peak_)) peak_ = s;
  if (global_step % every_steps_ != 0) return;
  if (samples_.size() == kMostSamples) thin_out();
  if (global_step % every_steps_ == 0) samples_.push_back(std::move(s));
}

// The samples of every second step go, so that a long run's report stays short.
void MemoryReport::thin_out() {
  while (samples_.size() > kMostSamples / 2 && every_steps_ < (int64_t(1) << 40)) {
    every_steps_ *= 2;
    std::erase_if(samples_,
                  [&](const MemorySample& s) { return s.global_step % every_steps_ != 0; });
  }
  if (samples_.size() == kMostSamples) samples_.erase(samples_.begin() + kMostSamples / 2);
}

void MemoryReport::set_arenas(const std::vector<Arena*>& arenas) {
  arenas_.clear();
  for (const Arena* a : arenas) arenas_.push_back({a->name(), a->capacity(), a->peak()});
}

std::string MemoryReport::json() const {
  nlohmann::ordered_json j = {{"Pid", ::getpid()},
                              {"CreatedUtc", created_utc_},
                              {"Samples", nlohmann::ordered_json::array()},
                              {"Source", source_.gpu ? "gpu" : "host"},
                              {"SampledEverySteps", every_steps_}};
  for (const MemorySample& s : samples_) j["Samples"].push_back(sample_json(s));
  if (peak_) j["Peak"] = sample_json(*peak_);
  j["PeakProcRssMiB"] = mib(process_peak_bytes());
  j["Arenas"] = nlohmann::ordered_json::array();
  for (const ArenaSize& a : arenas_) {
    j["Arenas"].push_back({{"name", a.name}, {"bytes", a.bytes}, {"peak_bytes", a.peak_bytes}});
  }
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void MemoryReport::write(const std::filesystem::path& file) const {
  make_directories(file.parent_path());
  replace_file(file, json());
  log_info("[TrainVRAM] json report saved: {} (samples={})", file.string(), samples_.size());
}

}  // namespace nibble
