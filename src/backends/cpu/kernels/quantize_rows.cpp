// SPDX-License-Identifier: MIT
// Floats straight into the packed layout: a strip's rows are converted, quantised by quant/nvfp4.h
// and packed by one thread, through buffers of its own.
#include <algorithm>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/linear.h"
#include "backends/cpu/kernels/packed_layout.h"

namespace nibble::cpu {

void quantize_rows(Context& c, const LinearWeight& w, int64_t row_begin, Tensor src,
                   ScaleRule rule) {
  const int64_t in = w.in, row_end = row_begin + src.dim(0);
  const int64_t first_strip = row_begin / kTileRows;
  const int64_t strips = strips_of(row_end) - first_strip;
  // Floats, codes and scales of one strip, in whole cache lines.
  const size_t float_bytes = size_t(kTileRows * in) * sizeof(float);
  const size_t scratch_bytes = (float_bytes + size_t(kTileRows * in) * 9 / 16 + 63) / 64 * 64;
  std::byte* scratch = c.thread_scratch.get(scratch_bytes * size_t(c.pool.size()));
  uint8_t* packed = w.packed.as<uint8_t>();
  const float* global = w.row_scale ? w.row_scale.as<float>() : nullptr;
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    auto* values = reinterpret_cast<float*>(scratch + scratch_bytes * size_t(thread));
    auto* codes = reinterpret_cast<uint8_t*>(values) + float_bytes;
    uint8_t* scales = codes + kTileRows * in / 2;
    for (int64_t s = first_strip + begin; s < first_strip + end; ++s) {
      const int64_t r0 = std::max(row_begin, s * kTileRows);
      const int64_t rows = std::min(row_end, (s + 1) * kTileRows) - r0;
      rows_to_float(src.slice(r0 - row_begin, rows), values, 0, rows);
      if (!global) {
        nibble::quantize_rows(values, rows, in, rule, 1.0f, codes, scales);
      } else {
        for (int64_t r = 0; r < rows; ++r) {
          nibble::quantize_rows(values + r * in, 1, in, rule, global[r0 + r], codes + r * in / 2,
                                scales + r * in / 16);
        }
      }
      pack_nvfp4(packed, in, r0, rows, codes, scales);
    }
  };
  for_rows(c.pool, strips, kTileRows * in, body);
}

}  // namespace nibble::cpu
