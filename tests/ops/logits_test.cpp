// SPDX-License-Identifier: MIT
// argmax and cross entropy.
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

TEST(Logits, CrossEntropy) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 5, 16, 100, 5000, 151936}) {
      for (DType loss_type : {DType::f32, act}) {
        Operand logits(act, {4, v}, 3), targets(DType::i32, {4}), loss(loss_type, {4});
        logits.normal(uint64_t(v), 5.0);
        targets.fill([=](int64_t i) { return i == 2 ? -1.0 : double((i * 37) % v); });
        b.cpu->cross_entropy(loss.cpu, logits.cpu, targets.cpu);
        b.reference().cross_entropy(loss.ref, logits.ref, targets.ref);
        // Relative error of the sum: exp (2 ulp plus that of its argument, below 30 * 2^-24 for a
        // spread of 30), at most 256 additions in a lane, then double. It is the absolute error
        // of the logarithm. Two roundings of the result on top.
        const auto want = loss.ref_values();
        expect_close(
            loss,
            [&](int64_t i) {
              return (v == 1 ? 0 : (4 + 60 + 260) * kRoundoff) +
                     2 * kRoundoff * std::abs(want[size_t(i)]);
            },
            "cross_entropy");
        EXPECT_EQ(read_element(loss.cpu, 2, 0), 0.0);
      }
    }
  });
}

TEST(Logits, CrossEntropyIsStable) {
  Both b;
  on_every_target([&] {
    Operand logits(DType::f32, {2, 19}), targets(DType::i32, {2}), loss(DType::f32, {2});
    logits.fill([](int64_t i) { return i < 19 ? 1e4 + double(i) : -1e4 - double(i); });
    targets.fill([](int64_t) { return 3.0; });
    b.cpu->cross_entropy(loss.cpu, logits.cpu, targets.cpu);
    b.reference().cross_entropy(loss.ref, logits.ref, targets.ref);
    expect_close(
        loss, [](int64_t) { return 1e-5; }, "cross_entropy");
  });
}

}  // namespace
}  // namespace nibble::test
