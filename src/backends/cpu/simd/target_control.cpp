// SPDX-License-Identifier: MIT
#include "backends/cpu/simd/target_control.h"

#include <atomic>

#include "backends/cpu/simd/targets.h"
#include "core/error.h"
#include "hwy/highway.h"

namespace nibble::cpu {
namespace {

// What lies on top of Highway's AVX3, best first; each has what those after it have.
enum class Extra { bf16, vnni, none };
struct NamedExtra {
  Extra extra;
  std::string_view name;
};
constexpr NamedExtra kExtras[] = {{Extra::bf16, "AVX3_BF16"}, {Extra::vnni, "AVX3_VNNI"}};

#if HWY_ARCH_X86
constexpr int64_t kAvx3 = HWY_AVX3;
#else
constexpr int64_t kAvx3 = 0;
#endif

// A processor with either has AVX3; whether that is compiled is another question.
bool processor_has(Extra extra) {
#if defined(__x86_64__)
  if ((HWY_TARGETS & kAvx3) == 0) return false;
  const bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
  return vnni && (extra == Extra::vnni || __builtin_cpu_supports("avx512bf16"));
#else
  (void)extra;
  return false;
#endif
}

std::atomic<Extra> allowed{Extra::bf16};  // and those after it

bool use(Extra extra) {
  static const bool has[] = {processor_has(Extra::bf16), processor_has(Extra::vnni)};
  return has[int(extra)] && allowed.load(std::memory_order_relaxed) <= extra;
}

}  // namespace

bool use_vnni() { return use(Extra::vnni); }
bool use_bf16_pairs() { return use(Extra::bf16); }

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  hwy::SetSupportedTargetsForTest(0);
  for (int64_t t : hwy::SupportedAndGeneratedTargets()) {
    for (const NamedExtra& e : kExtras) {
      if (t == kAvx3 && processor_has(e.extra)) names.emplace_back(e.name);
    }
    names.emplace_back(hwy::TargetName(t));
  }
  return names;
}

std::string active_target() {
  const int64_t best = hwy::SupportedAndGeneratedTargets().front();
  for (const NamedExtra& e : kExtras) {
    if (best == kAvx3 && use(e.extra)) return std::string(e.name);
  }
  return hwy::TargetName(best);
}

void select_target(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  allowed = name.empty() ? Extra::bf16 : Extra::none;
  if (name.empty()) return;
  for (const NamedExtra& e : kExtras) {
    if (name == e.name && processor_has(e.extra)) {
      allowed = e.extra;
      name = hwy::TargetName(kAvx3);
    }
  }
  for (int64_t t : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(t)) {
      hwy::SetSupportedTargetsForTest(t);
      return;
    }
  }
  throw_usage("this processor or build has no SIMD target '{}'", name);
}

}  // namespace nibble::cpu
