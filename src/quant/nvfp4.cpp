// SPDX-License-Identifier: MIT
#include "quant/nvfp4.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "core/error.h"
#include "core/thread_pool.h"
#include "quant/codec.h"
#include "quant/nvfp4_kernels.h"

namespace nibble {
namespace {

using nvfp4_kernels::Run;

struct RuleName {
  ScaleRule rule;
  std::string_view name;
};
constexpr RuleName kRules[] = {{ScaleRule::four_over_six, "four-over-six"},
                               {ScaleRule::absmax, "absmax"},
                               {ScaleRule::search, "search"},
                               {ScaleRule::torchao, "torchao"}};

// Blocks per piece of parallel work: 4 MiB of weights, a fraction of a millisecond.
constexpr int64_t kGrain = 4096;

int64_t block_count(int64_t rows, int64_t cols, float global_scale) {
  if (rows < 0 || cols < 0 || cols % kNvfp4Block != 0) {
    throw_internal("NVFP4 matrix of {} x {}: the width must be a multiple of {}", rows, cols,
                   kNvfp4Block);
  }
  if (!(global_scale > 0 && global_scale <= FLT_MAX)) {
    throw_internal("NVFP4 global scale {}: it must be a positive number", global_scale);
  }
  return rows * (cols / kNvfp4Block);
}

void check_rule(ScaleRule rule, float global_scale) {
  if (rule == ScaleRule::torchao && global_scale != 1) {
    throw_internal("scale rule torchao with global scale {}: it is single-level", global_scale);
  }
}

void quantize_blocks(const Run& run, ScaleRule rule) {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_fma) return nvfp4_kernels::quantize_avx2(run, rule);
#endif
  nvfp4_kernels::quantize_portable(run, rule);
}

// Both values of a code byte.
struct CodePair {
  float low, high;
};
constexpr std::array<CodePair, 256> kCodePairs = [] {
  std::array<CodePair, 256> t{};
  for (size_t i = 0; i < 256; ++i) t[i] = {e2m1_value(i & 15), e2m1_value(uint8_t(i >> 4))};
  return t;
}();

void dequantize_blocks(const uint8_t* codes, const uint8_t* scales, int64_t blocks, float g,
                       float* out) {
  // value = (e2m1 * e4m3) * g: the first product is exact, so there is one rounding at most.
  for (int64_t b = 0; b < blocks; ++b) {
    const float s = e4m3_value(scales[b]);
    CodePair pairs[8];
    for (int j = 0; j < 8; ++j) pairs[j] = kCodePairs[codes[b * 8 + j]];
    float* o = out + b * kNvfp4Block;
    for (int j = 0; j < 8; ++j) {
      o[2 * j] = pairs[j].low * s * g;
      o[2 * j + 1] = pairs[j].high * s * g;
    }
  }
}

}  // namespace

std::string_view scale_rule_name(ScaleRule rule) {
  for (const RuleName& r : kRules) {
    if (r.rule == rule) return r.name;
  }
  throw_internal("scale rule {}", int(rule));
}

float two_level_scale(float amax) {
  if (amax == 0) return 1;
  // A subnormal quotient would lose bits, and flushes to zero on some devices.
  return std::max(FLT_MIN, amax / (kE4m3Max * kE2m1Max));
}

float absolute_maximum(const float* x, int64_t n) {
  uint32_t bits = 0;  // magnitudes order like integers, NaN above all
  for (int64_t i = 0; i < n; ++i) {
    bits = std::max(bits, __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu);
  }
  return __builtin_bit_cast(float, bits);
}

void quantize_block(const float* x, ScaleRule rule, float global_scale, uint8_t* codes,
                    uint8_t* scale) {
  quantize_rows(x, 1, kNvfp4Block, rule, global_scale, codes, scale);
}

void quantize_rows(const float* x, int64_t rows, int64_t cols, ScaleRule rule, float global_scale,
                   uint8_t* codes, uint8_t* scales) {
  const int64_t blocks = block_count(rows, cols, global_scale);
  check_rule(rule, global_scale);
  quantize_blocks({x, blocks, global_scale, codes, scales}, rule);
}

void quantize_rows(ThreadPool& pool, const float* x, int64_t rows, int64_t cols, ScaleRule rule,
                   float global_scale, uint8_t* codes, uint8_t* scales) {
  const int64_t blocks = block_count(rows, cols, global_scale);
  check_rule(rule, global_scale);
  pool.parallel_for(blocks, kGrain, [&](int64_t begin, int64_t end, int) {
    quantize_blocks(
        {x + begin * kNvfp4Block, end - begin, global_scale, codes + begin * 8, scales + begin},
        rule);
  });
}

void dequantize_rows(const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t cols,
                     float global_scale, float* out) {
  dequantize_blocks(codes, scales, block_count(rows, cols, global_scale), global_scale, out);
}

void dequantize_rows(ThreadPool& pool, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                     int64_t cols, float global_scale, float* out) {
  const int64_t blocks = block_count(rows, cols, global_scale);
  pool.parallel_for(blocks, kGrain, [&](int64_t begin, int64_t end, int) {
    dequantize_blocks(codes + begin * 8, scales + begin, end - begin, global_scale,
                      out + begin * kNvfp4Block);
  });
}

void QuantError::add(std::span<const float> exact, std::span<const float> quantised) {
  if (exact.size() != quantised.size()) {
    throw_internal("error of {} elements against {}", quantised.size(), exact.size());
  }
  for (size_t i = 0; i < exact.size(); ++i) {
    const double x = exact[i];
    const double e = std::abs(double(quantised[i]) - x);
    sum_squares += x * x;
    sum_squared_error += e * e;
    take_maximum(e);
  }
  count += int64_t(exact.size());
}

void QuantError::take_maximum(double e) {
  if (std::isnan(max_abs_error)) return;
  if (!(e <= max_abs_error)) max_abs_error = e;  // true for a NaN as well
}

void QuantError::add(const QuantError& other) {
  sum_squared_error += other.sum_squared_error;
  sum_squares += other.sum_squares;
  take_maximum(other.max_abs_error);
  count += other.count;
}

double QuantError::relative_rms() const {
  if (sum_squared_error == 0) return 0;
  return std::sqrt(sum_squared_error / sum_squares);
}

}  // namespace nibble
