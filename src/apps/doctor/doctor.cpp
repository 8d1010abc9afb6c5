// SPDX-License-Identifier: MIT
#include "apps/doctor/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "backends/cpu/simd/target_control.h"
#include "core/thread_pool.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// "model name : AMD EPYC 9B14"; ARM's /proc/cpuinfo has no such line.
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname machine = {};
  return uname(&machine) == 0 ? machine.machine : "unknown";
}

bool is_slow_target(const std::string& name) {
  return name == "SCALAR" || name == "EMU128" || name == "SSE2" || name == "SSSE3";
}

}  // namespace

const char* verdict_name(Verdict v) {
  switch (v) {
    case Verdict::ok: return "ok";
    case Verdict::note: return "note";
    case Verdict::problem: return "problem";
  }
  return "";
}

CpuFacts cpu_facts() {
  CpuFacts f{processor_name(),
             int(sysconf(_SC_NPROCESSORS_ONLN)),
             default_thread_count(),
             cpu::active_target(),
             {}};
  f.targets = cpu::available_targets();
  return f;
}

Finding judge_cpu(const CpuFacts& c) {
  Finding f{"cpu", Verdict::ok, "", ""};
  f.text =
      fmt::format("{}, {} of {} cores usable, kernels in {}", c.model, c.usable, c.cores, c.target);
  if (c.targets.size() > 1) f.text += fmt::format(" (has {})", fmt::join(c.targets, ", "));
  if (is_slow_target(c.target)) {
    f.verdict = Verdict::note;
    f.text += "; AVX2 or later would be several times faster";
  }
  return f;
}

Finding judge_memory(const MemoryInfo& m) {
  return {"memory", Verdict::ok,
          fmt::format("{} of {} available", format_bytes(m.available_bytes),
                      format_bytes(m.total_bytes)),
          ""};
}

DiskFacts disk_facts() {
  std::error_code ec;
  DiskFacts d;
  d.folder = fs::current_path(ec);
  const fs::space_info space = fs::space(".", ec);
  d.free_bytes = ec ? 0 : space.available;
  d.writable = access(".", W_OK) == 0;
  return d;
}

Finding judge_disk(const DiskFacts& d) {
  // A checkpoint of the smallest real model, its export and a report.
  constexpr uint64_t kLittle = uint64_t(4) << 30;
  Finding f{"disk", Verdict::ok, "", ""};
  f.text = fmt::format("{} free in {}", format_bytes(d.free_bytes), d.folder.string());
  if (!d.writable) {
    f.verdict = Verdict::problem;
    f.text += ", where nothing can be written: runs and models need a folder of yours";
    f.type = "cd ~";
  } else if (d.free_bytes < kLittle) {
    f.verdict = Verdict::note;
    f.text += ": enough for the mini model, little for checkpoints of a real one";
  }
  return f;
}

TerminalFacts terminal_facts() {
  TerminalFacts t;
  t.terminal = isatty(STDOUT_FILENO) == 1;
  // The environment's locale, without making it the program's.
  if (const locale_t locale = newlocale(LC_CTYPE_MASK, "", locale_t(0))) {
    t.codeset = nl_langinfo_l(CODESET, locale);
    freelocale(locale);
  }
  return t;
}

Finding judge_terminal(const TerminalFacts& t) {
  Finding f{"terminal", Verdict::ok, "", ""};
  if (t.codeset == "UTF-8") {
    f.text = "UTF-8";
    return f;
  }
  f.text = fmt::format("the locale's character set is {}; nibble reads and writes UTF-8",
                       t.codeset.empty() ? "not known here" : t.codeset);
  f.verdict = t.terminal ? Verdict::problem : Verdict::note;  // a file or a pipe takes any bytes
  f.type = "export LC_ALL=C.UTF-8";
  return f;
}

Finding judge_mini_model(const fs::path& found, const std::vector<fs::path>& places) {
  if (!found.empty()) {
    return {"mini model", Verdict::ok, found.lexically_normal().string(),
            "nibble chat --model mini"};
  }
  std::vector<std::string> looked;
  for (const fs::path& p : places) {
    looked.push_back((p / "models/mini").lexically_normal().string());
  }
  return {"mini model", Verdict::problem,
          fmt::format("not found: looked for {}", fmt::join(looked, ", ")),
          "cmake --install BUILD-FOLDER   (or name the folder: --model models/mini)"};
}

GpuFacts gpu_facts() {
  GpuFacts g;
  g.support = cuda_support();
  g.blas = cuda_blas_library();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    g.hidden = *visible == '\0' || *visible == '-';
  }
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", ec)) {
    const bool display = first_line(entry.path() / "class").starts_with("0x03");
    if (display && first_line(entry.path() / "vendor") == "0x10de") {
      g.on_bus.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(g.on_bus);
  return g;
}

std::vector<Finding> judge_gpus(const GpuFacts& g) {
  const CudaSupport& s = g.support;
  std::vector<Finding> all;
  const bool with_cuda = !s.runtime.empty();
  if (s.devices.empty()) {
    if (g.on_bus.empty()) {
      all.push_back(
          {"gpu", Verdict::note, "no NVIDIA GPU in this machine; the CPU does the work", ""});
      return all;
    }
    if (g.hidden) {  // on purpose, so nothing is wrong
      all.push_back(
          {"gpu", Verdict::note, "hidden by CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES"});
      return all;
    }
    Finding f{"gpu", Verdict::problem, "", ""};
    f.text = fmt::format("{} NVIDIA GPU{} on the bus ({}), but {}", g.on_bus.size(),
                         g.on_bus.size() == 1 ? "" : "s", fmt::join(g.on_bus, ", "), s.problem);
    f.type =
        !with_cuda ? kBuildForEveryGpu
        : s.driver.empty()
            ? "sudo apt-get install nvidia-driver   (Ubuntu: sudo ubuntu-drivers install; in a "
              "container: docker run --gpus all)"
            : "nvidia-smi";
    all.push_back(f);
    return all;
  }
  all.push_back({"driver", Verdict::ok,
                 fmt::format("CUDA {}; this build is made with {}", s.driver, s.runtime), ""});
  if (g.blas.empty()) {
    std::string package = s.runtime;
    std::ranges::replace(package, '.', '-');
    all.push_back(
        {"cublasLt", Verdict::problem,
         "not found in the library path or /usr/local/cuda/lib64; GPUs need it",
         fmt::format("sudo apt-get install libcublas-{}   (NVIDIA's repository), or export "
                     "LD_LIBRARY_PATH=FOLDER",
                     package)});
  } else {
    all.push_back({"cublasLt", Verdict::ok, g.blas, ""});
  }
  return all;
}

}  // namespace nibble
