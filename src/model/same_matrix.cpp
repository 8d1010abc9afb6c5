// SPDX-License-Identifier: MIT
#include "model/same_matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/gguf/block_types.h"

namespace nibble {
namespace {

constexpr int64_t kSampledRows = 512, kElementsAround = 256;
constexpr double kAgreeingShare = 0.999;

// Of the largest magnitude around. What is stored as it is has been rounded to bf16 at worst.
double step_of(const TensorInfo& t) {
  return t.blocks ? 2.0 / double((int64_t(1) << t.blocks->bits) - 1) : 0x1p-8;
}

std::vector<float> read_row(const TensorSource& source, const TensorInfo& t, int64_t row) {
  std::vector<float> x(size_t(t.shape[1]));
  source.read(t, uint64_t(row * t.shape[1]) * sizeof(float), std::as_writable_bytes(std::span(x)));
  return x;
}

int64_t agreeing(std::span<const float> a, std::span<const float> b, double step_a, double step_b) {
  const auto amax = [](std::span<const float> x) {
    float most = 0;
    for (const float v : x) most = std::max(most, std::abs(v));
    return double(most);
  };
  const double room = amax(a) * step_a + amax(b) * step_b;
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::abs(double(a[i]) - double(b[i])) <= room;
  return n;
}

}  // namespace

bool same_within_blocks(const TensorSource& source, const TensorInfo& a, const TensorInfo& b) {
  if (a.shape != b.shape || a.shape.size() != 2 || (!a.blocks && !b.blocks)) return false;
  if (a.dtype != DType::f32 || b.dtype != DType::f32) return false;
  // With one bit an element, a step is the whole range: nothing could be told apart.
  if ((a.blocks && a.blocks->bits < 2) || (b.blocks && b.blocks->bits < 2)) return false;
  const int64_t rows = a.shape[0], cols = a.shape[1];
  const int64_t stride = std::max<int64_t>(1, rows / kSampledRows);
  int64_t good = 0, total = 0;
  for (int64_t row = 0; row < rows; row += stride) {
    const std::vector<float> x = read_row(source, a, row), y = read_row(source, b, row);
    for (int64_t at = 0; at < cols; at += kElementsAround) {
      const auto n = size_t(std::min(kElementsAround, cols - at));
      good += agreeing(std::span(x).subspan(size_t(at), n), std::span(y).subspan(size_t(at), n),
                       step_of(a), step_of(b));
      total += int64_t(n);
    }
  }
  return double(good) >= kAgreeingShare * double(total);
}

}  // namespace nibble
