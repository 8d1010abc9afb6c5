// SPDX-License-Identifier: MIT
#include "convert/tied_head.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "model/params.h"
#include "model/same_matrix.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

// Blocks of one row whose codes are nearest to x.
int64_t nearest_blocks(const float* x, const uint8_t* codes, const uint8_t* scales, int64_t cols,
                       float g) {
  int64_t count = 0;
  for (int64_t b = 0; b < cols / kNvfp4Block; ++b) {
    const float s = e4m3_value(scales[b]) * g;
    bool nearest = true;
    for (int64_t i = 0; i < kNvfp4Block && nearest; ++i) {
      const int64_t at = b * kNvfp4Block + i;
      const uint8_t code = uint8_t(codes[at / 2] >> (at % 2 * 4) & 15);
      const uint8_t best = s > 0 ? e2m1_encode(x[at] / s) : code;
      if (code == best) continue;
      const float distance = std::abs(e2m1_value(code) * s - x[at]);
      const float least = std::abs(e2m1_value(best) * s - x[at]);
      // Half a bf16 step moves x by up to 2^-8 of itself, one distance up and the other down.
      nearest = distance <= least + std::abs(x[at]) * 0x1p-7f;
    }
    count += nearest;
  }
  return count;
}

}  // namespace

HeadCheck check_head(const WeightIndex& index, ThreadPool& pool) {
  HeadCheck check;
  const LogicalTensor* head = index.find(kHeadName);
  const LogicalTensor* embed = index.find(kEmbedName);
  if (!head || !embed) return check;
  check.relation = HeadCheck::Relation::different;
  if (head->shape != embed->shape || embed->packed()) return check;

  const TensorSource& source = index.source();
  if (!head->packed() && same_within_blocks(source, *embed->raw, *head->raw)) {
    return {HeadCheck::Relation::rounded, 1};
  }
  const float g = head->packed() ? read_global_scale(source, *head) : 1;
  const int64_t rows = head->rows, cols = head->cols;
  std::atomic<int64_t> good{0};
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, cols));
  pool.parallel_for((rows + grain - 1) / grain, 1, [&](int64_t first, int64_t last, int) {
    std::vector<float> x(size_t(grain * cols)), h;
    std::vector<uint8_t> codes, scales;
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t begin = piece * grain, n = std::min(grain, rows - begin);
      read_rows_f32(source, *embed, begin, n, x.data());
      int64_t count = 0;
      if (head->packed()) {
        codes.resize(size_t(n * cols / 2));
        scales.resize(size_t(n * cols / kNvfp4Block));
        read_nvfp4_rows(source, *head, begin, n, codes.data(), scales.data());
        for (int64_t r = 0; r < n; ++r) {
          count += nearest_blocks(x.data() + r * cols, codes.data() + r * cols / 2,
                                  scales.data() + r * cols / kNvfp4Block, cols, g);
        }
      } else {
        h.resize(size_t(n * cols));
        read_rows_f32(source, *head, begin, n, h.data());
        for (int64_t r = 0; r < n; ++r) {
          count += std::equal(x.data() + r * cols, x.data() + (r + 1) * cols, h.data() + r * cols);
        }
      }
      good += count;
    }
  });
  const int64_t total = head->packed() ? rows * (cols / kNvfp4Block) : rows;
  check.share = total ? double(good) / double(total) : 1;
  const bool tied = head->packed() ? check.share >= kTiedShare : good == total;
  if (tied) check.relation = HeadCheck::Relation::tied;
  return check;
}

}  // namespace nibble
