// SPDX-License-Identifier: MIT
// nibble doctor: what this machine can do, what is missing, what to type.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/command.h"
#include "apps/doctor/doctor.h"
#include "apps/version.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "core/shipped_files.h"
#include "core/version.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

struct DoctorOptions {
  bool json = false;
  void visit_fields(Fields& f) {
    f.add(json, {.flag = "--json", .help = "One JSON object instead of text"});
  }
};

std::string device_flag(const Device& d) {
  return d.kind == Device::cpu ? "cpu" : fmt::format("cuda:{}", d.index);
}

std::string build_text() {
  const std::string cuda = *kCudaVersion
                               ? fmt::format("CUDA {} with code for {}", kCudaVersion, kCudaCode)
                               : "without CUDA";
  return fmt::format("{}, {}", cuda, kCompiler);
}

std::string ranks_text() {
  const std::string mpi = mpi_library(), nccl = nccl_library();
  return fmt::format("{}, {}", mpi.empty() ? "without MPI: one process trains alone" : mpi,
                     nccl.empty() ? "without NCCL" : "NCCL " + nccl);
}

std::vector<Finding> examine(const GpuFacts& gpus, const std::vector<DeviceReport>& devices) {
  std::vector<Finding> all = {
      {"build", Verdict::ok, build_text(), ""},
      {"ranks", Verdict::ok, ranks_text(), ""},
      judge_cpu(cpu_facts()),
      judge_memory(system_memory()),
      judge_disk(disk_facts()),
      judge_terminal(terminal_facts()),
      judge_mini_model(find_shipped_model("mini"), shipped_places(this_program()))};
  for (Finding& f : judge_gpus(gpus)) all.push_back(std::move(f));
  for (const DeviceReport& d : devices) all.push_back(d.finding);
  const bool anything =
      std::ranges::any_of(devices, [](const DeviceReport& d) { return largest_for_inference(d); });
  if (!anything) {
    all.push_back({"what fits", Verdict::problem,
                   "not even the smallest shape below fits into the memory that is free",
                   "free -h   (then end what holds the memory)"});
  }
  return all;
}

// "1.20 GiB", and where it does not fit, that.
std::string amount(uint64_t bytes, bool fits) {
  return format_bytes(bytes) + (fits ? "" : " does not fit");
}

void print_shapes(const DeviceReport& d, std::ostream& out) {
  if (d.shapes.empty()) return;
  out << fmt::format(
      "\nOn {} ({} available): NVFP4 weights; inference with {} tokens of context, "
      "training 1 x {} tokens\n",
      device_flag(d.device), format_bytes(d.available_bytes), kDoctorContext, kDoctorTokens);
  for (const ShapeFit& s : d.shapes) {
    std::string training = amount(s.training_bytes, s.training);
    if (s.training_host_bytes > 0) {
      training += fmt::format(" + {} of the host's", format_bytes(s.training_host_bytes));
    }
    if (s.training) training += "  " + s.training_flags;
    out << fmt::format("  {:<11} inference {:<23}  training {}\n", s.shape,
                       amount(s.inference_bytes, s.inference), training);
  }
  const ShapeFit* runs = largest_for_inference(d);
  const ShapeFit* trains = largest_for_training(d);
  out << fmt::format("  largest that fits: {} for inference, {} for training\n",
                     runs ? runs->shape : "none", trains ? trains->shape : "none");
}

void print_text(const std::vector<Finding>& findings, const std::vector<DeviceReport>& devices,
                std::ostream& out) {
  out << version_line() << "\n\n";
  for (const Finding& f : findings) {
    out << fmt::format("{:<8} {:<10}  {}\n", verdict_name(f.verdict), f.topic, f.text);
    if (!f.type.empty()) out << fmt::format("{:<21}type: {}\n", "", f.type);
  }
  for (const DeviceReport& d : devices) print_shapes(d, out);
  const auto problems = std::ranges::count(findings, Verdict::problem, &Finding::verdict);
  out << (problems == 0   ? "\nEverything works.\n"
          : problems == 1 ? "\n1 problem: see above what to type.\n"
                          : fmt::format("\n{} problems: see above what to type.\n", problems));
}

ordered_json to_json(const DeviceReport& d) {
  ordered_json shapes = ordered_json::array();
  for (const ShapeFit& s : d.shapes) {
    shapes.push_back({{"shape", s.shape},
                      {"inference_bytes", s.inference_bytes},
                      {"inference_fits", s.inference},
                      {"training_bytes", s.training_bytes},
                      {"training_host_bytes", s.training_host_bytes},
                      {"training_fits", s.training},
                      {"training_flags", s.training_flags}});
  }
  const auto name = [](const ShapeFit* s) {
    return s ? ordered_json(s->shape) : ordered_json(nullptr);
  };
  return {{"device", device_flag(d.device)},
          {"name", d.name},
          {"total_bytes", d.total_bytes},
          {"available_bytes", d.available_bytes},
          {"usable", !d.shapes.empty()},
          {"largest_for_inference", name(largest_for_inference(d))},
          {"largest_for_training", name(largest_for_training(d))},
          {"shapes", shapes}};
}

void print_json(const std::vector<Finding>& findings, const std::vector<DeviceReport>& devices,
                bool works, std::ostream& out) {
  const CpuFacts cpu = cpu_facts();
  const MemoryInfo memory = system_memory();
  const DiskFacts disk = disk_facts();
  ordered_json j = {
      {"version", kVersion},
      {"commit", kCommit},
      {"compiler", kCompiler},
      {"cuda", {{"toolkit", kCudaVersion}, {"code", kCudaCode}}},
      {"mpi", mpi_library()},
      {"nccl", nccl_library()},
      {"works", works},
      {"cpu",
       {{"model", cpu.model},
        {"cores", cpu.cores},
        {"usable_cores", cpu.usable},
        {"simd", cpu.target},
        {"simd_available", cpu.targets}}},
      {"memory",
       {{"total_bytes", memory.total_bytes}, {"available_bytes", memory.available_bytes}}},
      {"disk",
       {{"folder", disk.folder.string()},
        {"free_bytes", disk.free_bytes},
        {"writable", disk.writable}}},
      {"findings", ordered_json::array()},
      {"devices", ordered_json::array()}};
  for (const Finding& f : findings) {
    ordered_json finding = {
        {"topic", f.topic}, {"verdict", verdict_name(f.verdict)}, {"text", f.text}};
    if (!f.type.empty()) finding["type"] = f.type;
    j["findings"].push_back(std::move(finding));
  }
  for (const DeviceReport& d : devices) j["devices"].push_back(to_json(d));
  out << j.dump(1) << "\n";
}

ExitCode run_doctor(const DoctorOptions& o, Io& io) {
  const GpuFacts gpus = gpu_facts();
  const std::vector<DeviceReport> devices = device_reports(gpus);
  const std::vector<Finding> findings = examine(gpus, devices);
  const bool works = std::ranges::none_of(
      findings, [](const Finding& f) { return f.verdict == Verdict::problem; });
  if (o.json) {
    print_json(findings, devices, works, io.out);
  } else {
    print_text(findings, devices, io.out);
  }
  return works ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command doctor_command() {
  return make_command<DoctorOptions>(
      "doctor", "Say what this machine can do, what is missing and what to type",
      "Looks at the processor, memory, disk, terminal, GPUs with driver and libraries, and says "
      "which\n"
      "of a few well-known shapes fit each device, by the code that plans real runs. No model is\n"
      "needed. Exit code 1 when something would not work.",
      run_doctor);
}

}  // namespace nibble
