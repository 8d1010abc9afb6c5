// SPDX-License-Identifier: MIT
// What fits on each device: by the same code that plans real runs, with shapes instead of files.
#include <fmt/format.h>

#include <algorithm>

#include "apps/doctor/doctor.h"
#include "backends/cpu/cpu_backend.h"
#include "core/thread_pool.h"
#include "job/memory_choice.h"
#include "measure/bench_random.h"
#include "runtime/runtime_memory.h"

namespace nibble {
namespace {

struct KnownShape {
  const char* name;
  int64_t C, L, Hq, Hkv, D, F;
  bool tied;
};
constexpr KnownShape kShapes[] = {
    {"Qwen3-0.6B", 1024, 28, 16, 8, 128, 3072, true},
    {"Qwen3-1.7B", 2048, 28, 16, 8, 128, 6144, true},
    {"Qwen3-4B", 2560, 36, 32, 8, 128, 9728, true},
    {"Qwen3-8B", 4096, 36, 32, 8, 128, 12288, false},
    {"Qwen3-14B", 5120, 40, 40, 8, 128, 17408, false},
};

Config config_of(const KnownShape& s) {
  Config c;
  c.C = s.C, c.L = s.L, c.Hq = s.Hq, c.Hkv = s.Hkv, c.D = s.D, c.F = s.F;
  c.V = 151936;
  c.tied = s.tied;
  c.max_positions = 40960;
  return c;
}

void fit_inference(Runtime& r, const Config& config, ShapeFit& fit) {
  r.model.config = config;
  r.source = make_random_source(config, 1, 1);  // sizes only: nothing of it is read
  CacheOptions cache;
  cache.context = kDoctorContext;
  const MemoryNeed need = memory_need(r, r.engine_options(cache));
  fit.inference_bytes = need.total();
  fit.inference = need.total() <= r.backend->available_memory();
}

void fit_training(const Runtime& r, const Config& config, ShapeFit& fit) {
  TrainChoices choices;
  choices.device = r.device;
  TrainSettings s = choices.settings();
  s.max_tokens = s.max_outputs = kDoctorTokens;
  s.max_sequences = 1;
  const std::vector<MemoryPlan> plans = memory_plans(s, choices, *r.backend, config, false, 1);
  auto chosen = std::ranges::find_if(plans, &MemoryPlan::fits);
  fit.training = chosen != plans.end();
  if (!fit.training) chosen = std::ranges::min_element(plans, {}, &MemoryPlan::total);
  fit.training_bytes = chosen->total;
  fit.training_host_bytes = chosen->on_host;
  fit.training_flags = memory_flags(*chosen);
}

std::vector<ShapeFit> fit_shapes(Runtime& r) {
  const bool on_gpu = r.device.kind == Device::cuda;
  r.compute = on_gpu ? DType::bf16 : DType::f32;
  r.activations = default_activations(r.device.kind, true);
  std::vector<ShapeFit> fits;
  for (const KnownShape& shape : kShapes) {
    ShapeFit fit;
    fit.shape = shape.name;
    const Config config = config_of(shape);
    fit_inference(r, config, fit);
    fit_training(r, config, fit);
    fits.push_back(std::move(fit));
  }
  return fits;
}

DeviceReport report_cpu() {
  DeviceReport d;
  d.device = Device::cpu;
  Runtime r;
  r.device = Device::cpu;
  r.backend = make_cpu_backend(default_thread_count());
  d.name = r.backend->name();
  d.total_bytes = system_memory().total_bytes;
  d.available_bytes = r.backend->available_memory();
  d.finding = {"on the cpu", Verdict::ok, "inference and training, every memory mode but host", ""};
  d.shapes = fit_shapes(r);
  return d;
}

DeviceReport report_gpu(const CudaDevice& gpu) {
  DeviceReport d;
  d.device = Device(Device::cuda, gpu.index);
  d.name = gpu.name;
  d.total_bytes = gpu.total_bytes;
  d.finding.topic = fmt::format("gpu {}", gpu.index);
  const std::string what = fmt::format("{}, compute capability {}.{}, {}", gpu.name, gpu.major,
                                       gpu.minor, format_bytes(gpu.total_bytes));
  try {
    Runtime r;
    r.device = d.device;
    r.backend = make_cuda_backend({.device = gpu.index});
    const BackendTraits can = r.backend->traits();
    d.available_bytes = r.backend->available_memory();
    d.finding.text = fmt::format(
        "{}, {} free: inference and training in every memory mode, code for {}.{}; W4A4 {}; "
        "decoding by {}",
        what, format_bytes(d.available_bytes), can.code_capability / 10, can.code_capability % 10,
        can.native_fp4 ? "on FP4 tensor cores" : "emulated exactly (FP4 tensor cores need 10.0)",
        can.one_launch_decode ? "one launch a token" : "a replayed graph of launches");
    d.shapes = fit_shapes(r);
  } catch (const DeviceError& e) {
    // An older GPU cannot be helped; missing code can be compiled, a driver asked.
    d.finding.verdict = gpu.major < 8 ? Verdict::note : Verdict::problem;
    d.finding.text = fmt::format("{}: {}", what, e.what());
    const bool no_code = d.finding.text.find("CMAKE_CUDA_ARCHITECTURES") != std::string::npos;
    if (gpu.major >= 8) d.finding.type = no_code ? kBuildForEveryGpu : "nvidia-smi";
  }
  return d;
}

}  // namespace

std::vector<DeviceReport> device_reports(const GpuFacts& gpus) {
  std::vector<DeviceReport> all;
  all.push_back(report_cpu());
  for (const CudaDevice& gpu : gpus.support.devices) all.push_back(report_gpu(gpu));
  return all;
}

const ShapeFit* largest_for_inference(const DeviceReport& d) {
  const auto last = std::find_if(d.shapes.rbegin(), d.shapes.rend(),
                                 [](const ShapeFit& s) { return s.inference; });
  return last == d.shapes.rend() ? nullptr : &*last;
}
const ShapeFit* largest_for_training(const DeviceReport& d) {
  const auto last = std::find_if(d.shapes.rbegin(), d.shapes.rend(),
                                 [](const ShapeFit& s) { return s.training; });
  return last == d.shapes.rend() ? nullptr : &*last;
}

}  // namespace nibble
