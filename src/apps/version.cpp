// SPDX-License-Identifier: MIT
#include "apps/version.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/cpu/simd/target_control.h"
#include "comm/process_ranks.h"
#include "core/version.h"

namespace nibble {

const char* const kCudaVersion = NIBBLE_CUDA_VERSION;
const char* const kCudaCode = NIBBLE_CUDA_CODE;
#ifdef __clang__
const char* const kCompiler = "clang++ " __clang_version__;
#else
const char* const kCompiler = "g++ " __VERSION__;
#endif

std::string version_text() {
  const std::string cuda =
      *kCudaVersion ? fmt::format("{}, code for {}", kCudaVersion, kCudaCode) : "without CUDA";
  return fmt::format("{}\ncuda      {}\ncpu       {} (this processor has {})\n{}compiler  {}\n",
                     version_line(), cuda, cpu::active_target(),
                     fmt::join(cpu::available_targets(), ", "), ranks_version_text(), kCompiler);
}

}  // namespace nibble
