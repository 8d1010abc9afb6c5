// SPDX-License-Identifier: MIT
// What `nibble doctor` looks at. What is found and how it is judged are apart, so that tests can
// judge machines that are not there.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "core/memory_info.h"
#include "runtime/device.h"

namespace nibble {

enum class Verdict { ok, note, problem };
const char* verdict_name(Verdict verdict);

struct Finding {
  std::string topic;  // "cpu", "gpu 0"
  Verdict verdict = Verdict::ok;
  std::string text;  // what was found
  std::string type;  // for a problem: the command that helps
};

// --- The machine ---
struct CpuFacts {
  std::string model;                 // "AMD EPYC 9B14"
  int cores = 0;                     // of the machine
  int usable = 0;                    // by this process
  std::string target;                // SIMD instructions in use, "AVX3_BF16"
  std::vector<std::string> targets;  // that this processor and build could use
};
CpuFacts cpu_facts();
Finding judge_cpu(const CpuFacts& cpu);

Finding judge_memory(const MemoryInfo& memory);

struct DiskFacts {
  std::filesystem::path folder;
  uint64_t free_bytes = 0;
  bool writable = false;
};
DiskFacts disk_facts();  // of the current folder
Finding judge_disk(const DiskFacts& disk);

struct TerminalFacts {
  std::string codeset;    // of the locale, "UTF-8"
  bool terminal = false;  // standard output is one
};
TerminalFacts terminal_facts();
Finding judge_terminal(const TerminalFacts& terminal);

// `found`: the mini model's folder, or empty.
Finding judge_mini_model(const std::filesystem::path& found,
                         const std::vector<std::filesystem::path>& places);

// --- GPUs ---
struct GpuFacts {
  CudaSupport support;
  std::vector<std::string> on_bus;  // NVIDIA GPUs on the PCI bus, with a driver or without
  std::string blas;                 // the cuBLASLt that was found; "": none
  bool hidden = false;              // by CUDA_VISIBLE_DEVICES
};
GpuFacts gpu_facts();
constexpr const char* kBuildForEveryGpu =
    "cmake --preset cuda-release && cmake --build --preset cuda-release";
// Why GPUs cannot be used here, or that there are none; nothing to say: empty.
std::vector<Finding> judge_gpus(const GpuFacts& gpus);

// --- What fits ---
struct ShapeFit {
  std::string shape;             // "Qwen3-4B"
  uint64_t inference_bytes = 0;  // weights, cache and workspace
  bool inference = false;        // fits
  uint64_t training_bytes = 0;   // of the fastest way that fits, or the one that needs least
  uint64_t training_host_bytes = 0;
  bool training = false;
  std::string training_flags;  // "--memory-mode release --recompute mlp"
};
struct DeviceReport {
  Device device;
  std::string name;
  Finding finding;  // what this build can do with it, or why nothing
  uint64_t total_bytes = 0, available_bytes = 0;
  std::vector<ShapeFit> shapes;  // the smallest first
};
// The CPU, and every GPU the driver names. What these figures assume:
constexpr int64_t kDoctorContext = 8192, kDoctorTokens = 512;
std::vector<DeviceReport> device_reports(const GpuFacts& gpus);
const ShapeFit* largest_for_inference(const DeviceReport& report);  // null: none fits
const ShapeFit* largest_for_training(const DeviceReport& report);

}  // namespace nibble
