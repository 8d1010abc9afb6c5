// SPDX-License-Identifier: MIT
// NVFP4 in its canonical layout: blocks of 16 inputs of one row, codes [rows, cols/2] with element
// 2j in the low nibble, one E4M3 scale byte per block [rows, cols/16].
// value = e2m1(code) * e4m3(scale) * global_scale.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace nibble {

class ThreadPool;

constexpr int64_t kNvfp4Block = 16;

// How a block's scale is chosen; docs/numerics.md has the rules to the bit.
enum class ScaleRule {
  four_over_six,  // amax/6, or amax/4 where that is closer: training and export
  absmax,         // amax/6
  search,         // the best of every code around those two: offline conversion
  torchao,        // max(amax/6, 2^-6) of the input rounded to bf16; global scale 1 only
};
std::string_view scale_rule_name(ScaleRule rule);

// The global scale of a two-level tensor: amax / (448 * 6), 1 when amax is 0.
float two_level_scale(float amax);
float absolute_maximum(const float* x, int64_t n);  // NaN when there is one

// One block: 16 floats -> 8 code bytes and a scale byte. A NaN makes the scale byte NaN (0x7f),
// infinities saturate.
void quantize_block(const float* x, ScaleRule rule, float global_scale, uint8_t* codes,
                    uint8_t* scale);

// x [rows, cols] -> codes [rows, cols/2], scales [rows, cols/16]; all contiguous. Throws
// InternalError when cols is not a multiple of 16 or the global scale is not a positive number.
// The result is the same bytes with and without a pool, at any thread count.
void quantize_rows(const float* x, int64_t rows, int64_t cols, ScaleRule rule, float global_scale,
                   uint8_t* codes, uint8_t* scales);
void quantize_rows(ThreadPool& pool, const float* x, int64_t rows, int64_t cols, ScaleRule rule,
                   float global_scale, uint8_t* codes, uint8_t* scales);
void dequantize_rows(const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t cols,
                     float global_scale, float* out);
void dequantize_rows(ThreadPool& pool, const uint8_t* codes, const uint8_t* scales, int64_t rows,
                     int64_t cols, float global_scale, float* out);

// What quantisation cost, summed over any number of tensors.
struct QuantError {
  double sum_squared_error = 0;
  double sum_squares = 0;
  double max_abs_error = 0;  // NaN as soon as one element's is
  int64_t count = 0;

  void add(std::span<const float> exact, std::span<const float> quantised);
  void add(const QuantError& other);
  double relative_rms() const;  // sqrt(error / squares); 0 when both are 0

 private:
  void take_maximum(double e);
};

}  // namespace nibble
