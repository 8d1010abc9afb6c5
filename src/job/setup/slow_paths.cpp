// SPDX-License-Identifier: MIT
#include "job/setup/slow_paths.h"

#include <fmt/format.h>

#include "backends/cpu/cpu_backend.h"
#include "core/log.h"

namespace nibble {

std::optional<std::string> slow_on_cuda(const TrainSettings& s) {
  if (s.compute == DType::f32) {
    return "--compute-dtype fp32: every product is computed by general fp32 kernels without tensor "
           "cores, for exact comparisons; bf16, the default on a GPU, is many times as fast";
  }
  const bool layers = s.recipe == Recipe::bf16, head = s.head() == Recipe::bf16;
  if ((!layers && !head) || s.master == s.compute) return std::nullopt;
  const std::string_view which = layers && head ? "linear layers and head"
                                 : layers       ? "linear layers"
                                                : "the head";
  const std::string_view flag = layers ? "--recipe bf16" : "--head-recipe bf16";
  return fmt::format(
      "{} with a master in {} and activations in {}: the products of {} are computed by general "
      "fp32 kernels without tensor cores, many times as slow; {} uses them",
      flag, dtype_name(s.master), dtype_name(s.compute), which,
      s.master == DType::f32 ? "--master-dtype bf16" : "--compute-dtype bf16");
}

std::optional<std::string> faster_on_bf16_cpu(const TrainSettings& s) {
  const bool weights_fit = s.recipe == Recipe::nvfp4 || s.master == DType::bf16;
  if (s.compute != DType::f32 || !weights_fit) return std::nullopt;
  return "this processor multiplies pairs of bf16: --compute-dtype bf16, with activations rounded "
         "to bf16 between layers, takes about 0.6 of the time of fp32 and less memory";
}

void warn_of_slow_kernels(const TrainSettings& settings, const Backend& backend) {
  if (backend.traits().device == DeviceKind::cuda) {
    if (const auto why = slow_on_cuda(settings)) log_warning("slow: {}", *why);
  } else if (cpu_multiplies_bf16_pairs()) {
    if (const auto hint = faster_on_bf16_cpu(settings)) log_debug("{}", *hint);
  }
}

}  // namespace nibble
