// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as what nvidia-smi prints.
#include "guard/gpu_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto apps = parse_compute_apps(text)) {
    for (const GpuProcess& p : *apps) {
      if (p.mib < 0) __builtin_trap();
    }
  }
  if (const auto used = parse_memory_used(text); used && *used < 0) __builtin_trap();
  if (const auto table = parse_smi_table(text); table && table->total_mib < 0) __builtin_trap();
  return 0;
}
