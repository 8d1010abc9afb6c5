// SPDX-License-Identifier: MIT
// argmax.
#include <limits>

#include "ops/op_support.h"

namespace nibble::test {
namespace {

int32_t argmax_of(Backend& backend, const std::vector<float>& row) {
  std::vector<float> copy = row;
  int32_t out = -1;
  backend.argmax(make_tensor(&out, DType::i32, {1}),
                 make_tensor(copy.data(), DType::f32, {1, int64_t(row.size())}));
  return out;
}

TEST(Logits, ArgmaxMatchesTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 7, 16, 33, 1000, 151936}) {
      Operand logits(act, {3, v}, 5), out(DType::i32, {3});
      logits.normal(uint64_t(v));
      b.cpu->argmax(out.cpu, logits.cpu);
      b.reference().argmax(out.ref, logits.ref);
      EXPECT_EQ(out.cpu_values(), out.ref_values()) << v;
    }
  });
}

TEST(Logits, ArgmaxTakesTheFirstOfEqualsAndNeverNan) {
  Both b;
  const float nan = NAN, inf = std::numeric_limits<float>::infinity();
  on_every_target([&] {
    for (size_t n : {1, 3, 16, 50}) {
      for (size_t first = 0; first < n; ++first) {
        std::vector<float> row(n, -2.0f);
        for (size_t i = first; i < n; ++i) row[i] = 3.0f;
        EXPECT_EQ(argmax_of(*b.cpu, row), int32_t(first));
        if (first > 0) row[first - 1] = nan;
        EXPECT_EQ(argmax_of(*b.cpu, row), int32_t(first));
      }
    }
    EXPECT_EQ(argmax_of(*b.cpu, std::vector<float>(20, nan)), 0);
    EXPECT_EQ(argmax_of(*b.cpu, std::vector<float>(20, -inf)), 0);
    EXPECT_EQ(argmax_of(*b.cpu, {nan, -inf, nan}), 0);
    EXPECT_EQ(argmax_of(*b.cpu, {nan, -inf, -3e38f, inf, inf}), 3);
    EXPECT_EQ(argmax_of(*b.cpu, {-5.0f, -4.0f, -6.0f}), 1);
  });
}

}  // namespace
}  // namespace nibble::test
