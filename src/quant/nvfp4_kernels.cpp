// SPDX-License-Identifier: MIT
#include "quant/nvfp4_kernels.h"

#include "core/error.h"
#include "quant/nvfp4_block.h"

#define NIBBLE_INLINE inline __attribute__((always_inline))

namespace nibble::nvfp4_kernels {
namespace {

template <ScaleRule kRule>
NIBBLE_INLINE void quantize(const Run& r) {
  for (int64_t i = 0; i < r.blocks; ++i) {
    r.scales[i] = nvfp4_block::quantize<kRule>(r.x + i * kNvfp4Block, r.global_scale,
                                               r.codes + i * (kNvfp4Block / 2));
  }
}

NIBBLE_INLINE void quantize(const Run& r, ScaleRule rule) {
  switch (rule) {
    case ScaleRule::four_over_six: return quantize<ScaleRule::four_over_six>(r);
    case ScaleRule::absmax: return quantize<ScaleRule::absmax>(r);
    case ScaleRule::search: return quantize<ScaleRule::search>(r);
    case ScaleRule::torchao: return quantize<ScaleRule::torchao>(r);
  }
  throw_internal("scale rule {}", int(rule));
}

}  // namespace

void quantize_portable(const Run& run, ScaleRule rule) { quantize(run, rule); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void quantize_avx2(const Run& run, ScaleRule rule) {
  quantize(run, rule);
}
#endif

}  // namespace nibble::nvfp4_kernels
