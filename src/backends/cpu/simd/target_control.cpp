// SPDX-License-Identifier: MIT
#include "backends/cpu/simd/target_control.h"

#include <atomic>

#include "backends/cpu/simd/targets.h"
#include "core/error.h"
#include "hwy/highway.h"

namespace nibble::cpu {
namespace {

constexpr std::string_view kVnniName = "AVX3_VNNI";

bool processor_has_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

#if HWY_ARCH_X86
constexpr int64_t kAvx3 = HWY_AVX3;
#else
constexpr int64_t kAvx3 = 0;
#endif

std::atomic<bool> vnni_allowed{true};

}  // namespace

bool use_vnni() {
  static const bool has = processor_has_vnni();
  return has && vnni_allowed.load(std::memory_order_relaxed);
}

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  hwy::SetSupportedTargetsForTest(0);
  for (int64_t t : hwy::SupportedAndGeneratedTargets()) {
    if (t == kAvx3 && processor_has_vnni()) names.emplace_back(kVnniName);
    names.emplace_back(hwy::TargetName(t));
  }
  return names;
}

std::string active_target() {
  const int64_t best = hwy::SupportedAndGeneratedTargets().front();
  if (best == kAvx3 && use_vnni()) return std::string(kVnniName);
  return hwy::TargetName(best);
}

void select_target(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  vnni_allowed = name.empty() || name == kVnniName;
  if (name.empty()) return;
  for (int64_t t : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(t) || (t == kAvx3 && name == kVnniName && processor_has_vnni())) {
      hwy::SetSupportedTargetsForTest(t);
      return;
    }
  }
  throw_usage("this processor or build has no SIMD target '{}'", name);
}

}  // namespace nibble::cpu
