// SPDX-License-Identifier: MIT
// Cross entropy, its gradient over a vocabulary in pieces, and the L1 loss.
#include <limits>

#include "ops/back_support.h"

namespace nibble::test {
namespace {

constexpr double kSpread = 60;  // of logits that are normal with deviation 5, generously

// Relative error of a sum of exponentials: exp itself (2 ulp), its argument, at most 256 additions
// in a lane, the float it is kept in; once more for every piece.
constexpr double kSumBound = (4 + kSpread + 260) * kRoundoff;

struct Loss {
  Operand logits, targets, stats, loss;
  Loss(DType act, DType stat, int64_t rows, int64_t v)
      : logits(act, {rows, v}, 3),
        targets(DType::i32, {rows}),
        stats(stat, {rows, 3}),
        loss(stat, {rows}) {
    logits.normal(uint64_t(v), 5.0);
    targets.fill([=](int64_t i) { return i == 2 ? -1.0 : double((i * 37 + v - 1) % v); });
  }
  void run(Both& b, int64_t piece) {
    const int64_t v = logits.cpu.dim(1);
    for (int64_t at = 0; at < v; at += piece) {
      const int64_t n = std::min(piece, v - at);
      const Accumulate a = at == 0 ? Accumulate::no : Accumulate::yes;
      b.cpu->softmax_stats(stats.cpu, logits.cpu.columns(at, n), targets.cpu, at, a);
      b.reference().softmax_stats(stats.ref, logits.ref.columns(at, n), targets.ref, at, a);
    }
    b.cpu->cross_entropy(loss.cpu, stats.cpu, targets.cpu);
    b.reference().cross_entropy(loss.ref, stats.ref, targets.ref);
  }
};

TEST(Loss, CrossEntropyWholeAndInPieces) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 5, 16, 100, 5000, 151936}) {
      for (int64_t piece : {v, v / 3 + 1, int64_t(4096)}) {
        SCOPED_TRACE(std::to_string(v) + " in pieces of " + std::to_string(piece));
        Loss l(act, DType::f32, 4, v);
        l.run(b, piece);
        const double pieces = double((v + piece - 1) / piece);
        const double sum = v == 1 ? kRoundoff : kSumBound + pieces * 4 * kRoundoff;
        const auto want = l.stats.ref_values();
        expect_close(
            l.stats,
            [&](int64_t i) { return i % 3 == 1 ? sum * want[size_t(i)] : 0.0; },  // others exact
            "softmax_stats");
        // The relative error of the sum is the absolute one of its logarithm.
        const auto loss = l.loss.ref_values();
        expect_close(
            l.loss, [&](int64_t i) { return sum + kRoundoff * std::abs(loss[size_t(i)]); },
            "cross_entropy");
        EXPECT_EQ(read_element(l.loss.cpu, 2, 0), 0.0);
      }
    }
  });
}

TEST(Loss, StatisticsInTheActivationType) {
  Both b;
  for (DType act : {DType::bf16, DType::f16}) {
    Loss l(act, act, 3, 200);
    l.run(b, 200);
    const auto want = l.stats.ref_values();
    expect_close(
        l.stats, [&](int64_t i) { return i % 3 == 1 ? kSumBound * want[size_t(i)] : 0.0; },
        "softmax_stats");
  }
}

TEST(Loss, CrossEntropyIsStable) {
  Both b;
  on_every_target([&] {
    Loss l(DType::f32, DType::f32, 2, 19);
    l.logits.fill([](int64_t i) { return i < 19 ? 1e4 + double(i) : -1e4 - double(i); });
    l.targets.fill([](int64_t) { return 3.0; });
    for (int64_t piece : {19, 4, 1}) {
      l.run(b, piece);
      expect_close(
          l.loss, [](int64_t) { return 1e-5; }, "cross_entropy");
    }
  });
}

// A piece of the vocabulary that is ruled out altogether adds nothing, wherever it comes; what is
// not a number becomes the loss.
TEST(Loss, InfinitiesAndNan) {
  Both b;
  const double inf = std::numeric_limits<double>::infinity();
  on_every_target([&] {
    for (int64_t first : {0, 20}) {
      Loss plain(DType::f32, DType::f32, 2, 20), with(DType::f32, DType::f32, 2, 40);
      plain.targets.fill([](int64_t) { return 7.0; });
      with.targets.fill([&](int64_t) { return double(first + 7); });
      with.logits.fill([&](int64_t i) {
        const int64_t column = i % 40 - first;
        return column >= 0 && column < 20 ? read_element(plain.logits.cpu, i / 40, column) : -inf;
      });
      plain.run(b, 20);
      for (int64_t piece : {20, 10, 40}) {
        with.run(b, piece);
        for (int64_t n = 0; n < 2; ++n) {
          EXPECT_NEAR(read_element(with.loss.cpu, n, 0), read_element(plain.loss.cpu, n, 0), 1e-5);
          EXPECT_NEAR(read_element(with.loss.ref, n, 0), read_element(plain.loss.cpu, n, 0), 1e-5);
        }
      }
      for (double bad : {inf, double(NAN)}) {
        write_element(with.logits.cpu, 1, first + 3, bad);
        for (int64_t piece : {40, 10}) {
          with.run(b, piece);
          EXPECT_TRUE(std::isfinite(read_element(with.loss.cpu, 0, 0)));
          EXPECT_FALSE(std::isfinite(read_element(with.loss.cpu, 1, 0)));
        }
      }
    }
  });
}

void check_gradient(Both& b, DType act, DType grad, int64_t v, int64_t piece, bool in_place,
                    double scale) {
  Loss l(act, DType::f32, 4, v);
  l.run(b, v);
  adopt_reference(l.stats);
  const auto x = l.logits.ref_values(), s = l.stats.ref_values();
  Operand d(grad, {4, v}, 5);
  Operand& out = in_place ? l.logits : d;
  for (int64_t at = 0; at < v; at += piece) {
    const int64_t n = std::min(piece, v - at);
    b.cpu->cross_entropy_back(out.cpu.columns(at, n), l.logits.cpu.columns(at, n), l.stats.cpu,
                              l.targets.cpu, at, scale);
    b.reference().cross_entropy_back(out.ref.columns(at, n), l.logits.ref.columns(at, n),
                                     l.stats.ref, l.targets.ref, at, scale);
  }
  const auto want = out.ref_values();
  expect_close(
      out,
      [&](int64_t i) {
        const size_t row = size_t(i / v);
        const double from_largest = std::abs(x[size_t(i)] - s[3 * row]);
        const double p = std::exp(-from_largest) / s[3 * row + 1];
        return scale * (p * (from_largest + 8) + std::abs(want[size_t(i)]) / scale) * kRoundoff +
               scale * 0x1p-148;
      },
      "cross_entropy_back");
  for (int64_t i = 0; i < v; ++i) EXPECT_EQ(read_element(out.cpu, 2, i), 0.0);
}

TEST(Loss, CrossEntropyBack) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 5, 16, 100, 3001}) {
      SCOPED_TRACE(v);
      for (DType grad : kActTypes) check_gradient(b, act, grad, v, v, false, 0.25);
      check_gradient(b, act, act, v, v, true, 1.0 / 3);
      check_gradient(b, act, act, v, v / 3 + 1, true, 1024.0 / 7);
      check_gradient(b, act, DType::bf16, v, 64, false, 1e-3);
    }
  });
}

TEST(Loss, L1) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType grad : {act, DType::f32}) {
      for (DType embedding : kActTypes) {
        for (int64_t c : {1, 7, 16, 255, 256, 300, 1000}) {
          Operand h(act, {4, c}, 3), dh(grad, {4, c}, 2), table(embedding, {6, c});
          Operand targets(DType::i32, {4}), loss(DType::f32, {4});
          h.normal(1), table.normal(2);
          targets.fill([](int64_t i) { return std::array{5.0, 0.0, -1.0, 2.0}[size_t(i)]; });
          // Row 3 equals its target here and there: no sign.
          for (int64_t i = 0; i < c; i += 3) {
            const double v = i % 2 ? 0.5 : -0.25;
            write_element(h.cpu, 3, i, v), write_element(h.ref, 3, i, v);
            write_element(table.cpu, 2, i, v), write_element(table.ref, 2, i, v);
          }
          b.cpu->l1_loss(loss.cpu, dh.cpu, h.cpu, table.cpu, targets.cpu, 0.3);
          b.reference().l1_loss(loss.ref, dh.ref, h.ref, table.ref, targets.ref, 0.3);
          // Differences, at most 64 of which share a lane before they go to double.
          expect_relative(loss, 70 * kRoundoff, "l1_loss");
          expect_relative(dh, kRoundoff, "dh");
          EXPECT_EQ(read_element(loss.cpu, 2, 0), 0.0);
          EXPECT_EQ(read_element(dh.cpu, 3, 0), 0.0);
          EXPECT_EQ(read_element(dh.cpu, 2, c - 1), 0.0);
        }
      }
    }
  });
}

TEST(Loss, ThreadsDoNotShow) {
  on_every_target([&] {
    std::vector<std::vector<uint8_t>> results;
    for (int threads : {1, 3}) {
      const auto backend = make_tested_backend(threads);
      Loss l(DType::f32, DType::f32, 70, 2000);
      Operand table(DType::bf16, {2000, 2000}), d(DType::f32, {70, 2000}), l1(DType::f32, {70});
      table.fill([](int64_t i) { return double(i % 17) - 8; });
      for (int64_t at : {0, 1000}) {
        backend->softmax_stats(l.stats.cpu, l.logits.cpu.columns(at, 1000), l.targets.cpu, at,
                               at ? Accumulate::yes : Accumulate::no);
      }
      backend->cross_entropy(l.loss.cpu, l.stats.cpu, l.targets.cpu);
      backend->l1_loss(l1.cpu, d.cpu, l.logits.cpu, table.cpu, l.targets.cpu, 0.5);
      results.push_back(d.bytes());
      backend->cross_entropy_back(d.cpu, l.logits.cpu, l.stats.cpu, l.targets.cpu, 0, 0.5);
      for (const Operand* o : {&d, &l.stats, &l.loss, &l1}) results.push_back(o->bytes());
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i], results[i + 5]) << i;
  });
}

}  // namespace
}  // namespace nibble::test
