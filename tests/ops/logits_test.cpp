// SPDX-License-Identifier: MIT
// The greedy choice over rows of every length: the largest logit by SIMD.
#include <limits>

#include "ops/op_support.h"

namespace nibble::test {
namespace {

int32_t greedy_of(Backend& backend, const std::vector<float>& row) {
  std::vector<float> copy = row;
  SampleRow options;
  int32_t out = -2;
  backend.sample(make_tensor(&out, DType::i32, {1}),
                 make_tensor(copy.data(), DType::f32, {1, int64_t(row.size())}),
                 make_tensor(&options, DType::i32, {1, 16}), {}, Choice::greedy);
  return out;
}

TEST(Logits, GreedyMatchesTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    if (testing_cuda() && act != DType::f32) return;  // whose head writes f32 alone
    for (int64_t v : {1, 7, 16, 33, 1000, 151936}) {
      Operand logits(act, {3, v}, 5), out(DType::i32, {3});
      logits.normal(uint64_t(v));
      std::vector<SampleRow> rows(3);
      const Tensor options = make_tensor(rows.data(), DType::i32, {3, 16});
      b.cpu->sample(out.cpu, logits.cpu, options, {}, Choice::greedy);
      b.reference().sample(out.ref, logits.ref, options, {}, Choice::greedy);
      EXPECT_EQ(out.cpu_values(), out.ref_values()) << v;
    }
  });
}

TEST(Logits, GreedyTakesTheFirstOfEqualsAndNeverNan) {
  Both b;
  const float nan = NAN, inf = std::numeric_limits<float>::infinity();
  on_every_target([&] {
    for (size_t n : {1u, 3u, 16u, 50u}) {
      for (size_t first = 0; first < n; ++first) {
        std::vector<float> row(n, -2.0f);
        for (size_t i = first; i < n; ++i) row[i] = 3.0f;
        EXPECT_EQ(greedy_of(*b.cpu, row), int32_t(first));
        if (first > 0) row[first - 1] = nan;
        EXPECT_EQ(greedy_of(*b.cpu, row), int32_t(first));
      }
    }
    EXPECT_EQ(greedy_of(*b.cpu, std::vector<float>(20, nan)), -1);
    EXPECT_EQ(greedy_of(*b.cpu, std::vector<float>(20, -inf)), -1);
    EXPECT_EQ(greedy_of(*b.cpu, {nan, -inf, nan}), -1);
    EXPECT_EQ(greedy_of(*b.cpu, {nan, -inf, -3e38f, inf, inf}), -1);
    EXPECT_EQ(greedy_of(*b.cpu, {nan, -inf, -3e38f, -2e38f}), 3);
    EXPECT_EQ(greedy_of(*b.cpu, {-5.0f, -4.0f, -6.0f}), 1);
  });
}

}  // namespace
}  // namespace nibble::test
