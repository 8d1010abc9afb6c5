// SPDX-License-Identifier: MIT
// The choice of the next token: greedy by argmax, anything else by the rule's own host code, a
// thread per row.
#include <cmath>

#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
namespace {

float element(const Tensor& t, int64_t row, int64_t i) {
  float v = 0;
  convert_elements(
      make_tensor(&v, DType::f32, {1}),
      make_tensor(t.data + size_t(row * t.row_stride + i) * dtype_bytes(t.dtype), t.dtype, {1}));
  return v;
}

}  // namespace

void sample(ThreadPool& pool, Tensor out, Tensor logits, Tensor rows, Tensor context,
            Choice choice) {
  int32_t* ids = out.as<int32_t>();
  const int64_t width = logits.dim(1);
  if (choice == Choice::greedy) {
    argmax(pool, out, logits);
    for (int64_t n = 0; n < logits.dim(0); ++n) {
      if (!std::isfinite(element(logits, n, ids[n]))) ids[n] = -1;
    }
    return;
  }
  const auto* table = reinterpret_cast<const SampleRow*>(rows.data);
  pool.parallel_for(logits.dim(0), 1, [&](int64_t begin, int64_t end, int) {
    SampleScratch scratch;
    std::vector<float> converted;
    for (int64_t n = begin; n < end; ++n) {
      const float* x = nullptr;
      if (logits.dtype == DType::f32) {
        x = logits.row<float>(n);
      } else {
        converted.resize(size_t(width));
        convert_elements(make_tensor(converted.data(), DType::f32, {width}),
                         logits.slice(n, 1).view({width}));
        x = converted.data();
      }
      std::span<const int32_t> seen;
      if (context && table[n].repetition_penalty != 1) {
        seen = {context.as<int32_t>() + table[n].context_begin, size_t(table[n].context_length)};
      }
      ids[n] = choose_token({x, size_t(width)}, seen, table[n], scratch);
    }
  });
}

}  // namespace nibble::cpu
