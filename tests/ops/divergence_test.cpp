// SPDX-License-Identifier: MIT
// KL(teacher || model) over a vocabulary in pieces, and its gradient.
#include <limits>

#include "ops/back_support.h"

namespace nibble::test {
namespace {

struct Divergence {
  Operand logits, teacher, nobody, stats, teacher_stats, loss;
  Divergence(DType act, DType stat, int64_t rows, int64_t v)
      : logits(act, {rows, v}, 3),
        teacher(act, {rows, v}, 2),
        nobody(DType::i32, {rows}),
        stats(stat, {rows, 3}),
        teacher_stats(stat, {rows, 3}),
        loss(stat, {rows}) {
    logits.normal(uint64_t(v), 5.0);
    teacher.normal(uint64_t(v) + 1, 5.0);
    nobody.fill([](int64_t) { return -1.0; });
  }
  int64_t width() const { return logits.cpu.dim(1); }
  // Statistics by the reference, as both sides store them.
  void make_stats(Both& b) {
    b.reference().softmax_stats(stats.ref, logits.ref, nobody.ref, 0, Accumulate::no);
    b.reference().softmax_stats(teacher_stats.ref, teacher.ref, nobody.ref, 0, Accumulate::no);
    adopt_reference(stats), adopt_reference(teacher_stats);
  }
  // `d` null: no gradient.
  void run(Both& b, int64_t piece, Operand* d, double scale) {
    for (int64_t at = 0; at < width(); at += piece) {
      const int64_t n = std::min(piece, width() - at);
      const Accumulate a = at == 0 ? Accumulate::no : Accumulate::yes;
      b.cpu->divergence(loss.cpu, d ? d->cpu.columns(at, n) : Tensor{}, logits.cpu.columns(at, n),
                        stats.cpu, teacher.cpu.columns(at, n), teacher_stats.cpu, scale, a);
      b.reference().divergence(loss.ref, d ? d->ref.columns(at, n) : Tensor{},
                               logits.ref.columns(at, n), stats.ref, teacher.ref.columns(at, n),
                               teacher_stats.ref, scale, a);
    }
  }
};

void check(Both& b, DType act, DType grad, int64_t v, int64_t piece, bool in_place, double scale) {
  SCOPED_TRACE(std::to_string(v) + " in pieces of " + std::to_string(piece));
  Divergence k(act, DType::f32, 4, v);
  k.make_stats(b);
  const auto x = k.logits.ref_values(), t = k.teacher.ref_values();
  const auto s = k.stats.ref_values(), ts = k.teacher_stats.ref_values();
  const auto far = [](const std::vector<double>& z, const std::vector<double>& of, int64_t i,
                      int64_t width) {
    return std::abs(z[size_t(i)] - of[size_t(3 * (i / width))]);
  };
  const auto share = [&](const std::vector<double>& z, const std::vector<double>& of, int64_t i) {
    return std::exp(-far(z, of, i, v)) / of[size_t(3 * (i / v) + 1)];
  };
  Operand d(grad, {4, v}, 5);
  Operand& out = in_place ? k.logits : d;
  k.run(b, piece, &out, scale);
  // Each term is q (log q - log p): q to the rounding of its argument and of exp, the difference of
  // logarithms to the roundings of its parts; at most 64 terms of a run share a lane (on a GPU
  // v / 512), and each piece is rounded once more into the sum.
  std::vector<double> bound(4);
  for (int64_t i = 0; i < 4 * v; ++i) {
    const double a = far(t, ts, i, v), c = far(x, s, i, v), q = share(t, ts, i);
    const double logs = std::abs(std::log(ts[size_t(3 * (i / v) + 1)])) +
                        std::abs(std::log(s[size_t(3 * (i / v) + 1)]));
    const double difference = a + c + logs;
    bound[size_t(i / v)] += q * ((a + 8) * difference + 2 * (a + c + logs)) * kRoundoff +
                            q * difference * (260 + double((v + piece - 1) / piece)) * kRoundoff;
  }
  expect_close(
      k.loss, [&](int64_t n) { return bound[size_t(n)] + 1e-30; }, "divergence");
  const auto want = out.ref_values();
  expect_close(
      out,
      [&](int64_t i) {
        const double p = share(x, s, i), q = share(t, ts, i);
        return scale *
                   (p * (far(x, s, i, v) + 8) + q * (far(t, ts, i, v) + 8) +
                    std::abs(want[size_t(i)]) / scale) *
                   kRoundoff +
               scale * 0x1p-148;
      },
      "gradient");
}

TEST(Divergence, ValueAndGradientWholeAndInPieces) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 5, 16, 100, 3001}) {
      for (DType grad : kActTypes) check(b, act, grad, v, v, false, 0.25);
      check(b, act, act, v, v, true, 1.0 / 3);
      check(b, act, act, v, v / 3 + 1, true, 1024.0 / 7);
      check(b, act, DType::bf16, v, 64, false, 1e-3);
    }
  });
}

TEST(Divergence, OfARealVocabularyWithoutItsGradient) {
  Both b;
  on_every_target([&] {
    Divergence k(DType::f32, DType::f32, 2, 151936);
    k.make_stats(b);
    for (const int64_t piece : {151936, 8192}) {
      k.run(b, piece, nullptr, 1);
      // About 15 nats here, formed of terms that are up to three times as large together.
      expect_relative(k.loss, 1e-5, "divergence");
      EXPECT_GT(read_element(k.loss.cpu, 0, 0), 1.0);
    }
  });
}

// The model as its own teacher changes nothing: not nearly, but not at all.
TEST(Divergence, OfEqualLogitsIsExactlyNothing) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t v : {1, 17, 3001}) {
      Divergence k(act, DType::f32, 3, v);
      Operand d(act, {3, v}, 1);
      for (int64_t at = 0; at < v; at += 1000) {
        const int64_t n = std::min<int64_t>(1000, v - at);
        b.cpu->softmax_stats(k.stats.cpu, k.logits.cpu.columns(at, n), k.nobody.cpu, at,
                             at ? Accumulate::yes : Accumulate::no);
      }
      d.fill([](int64_t) { return 1.0; });
      k.loss.fill([](int64_t) { return 1.0; });
      b.cpu->divergence(k.loss.cpu, d.cpu, k.logits.cpu, k.stats.cpu, k.logits.cpu, k.stats.cpu,
                        65536.0, Accumulate::no);
      for (int64_t r = 0; r < 3; ++r) {
        EXPECT_EQ(read_element(k.loss.cpu, r, 0), 0.0);
        for (int64_t i = 0; i < v; ++i) ASSERT_EQ(read_element(d.cpu, r, i), 0.0) << r << " " << i;
      }
    }
  });
}

// What the teacher rules out adds nothing; what is not a number becomes the loss of its row alone.
TEST(Divergence, InfinitiesAndNan) {
  Both b;
  const double inf = std::numeric_limits<double>::infinity();
  on_every_target([&] {
    Divergence k(DType::f32, DType::f32, 2, 40);
    write_element(k.teacher.cpu, 0, 3, -inf), write_element(k.teacher.ref, 0, 3, -inf);
    k.make_stats(b);
    Operand d(DType::f32, {2, 40});
    k.run(b, 16, &d, 1);
    expect_relative(k.loss, 1e-5, "divergence");
    write_element(k.logits.cpu, 1, 7, NAN);
    b.cpu->softmax_stats(k.stats.cpu, k.logits.cpu, k.nobody.cpu, 0, Accumulate::no);
    b.cpu->divergence(k.loss.cpu, d.cpu, k.logits.cpu, k.stats.cpu, k.teacher.cpu,
                      k.teacher_stats.cpu, 1, Accumulate::no);
    EXPECT_TRUE(std::isfinite(read_element(k.loss.cpu, 0, 0)));
    EXPECT_FALSE(std::isfinite(read_element(k.loss.cpu, 1, 0)));
  });
}

TEST(Divergence, StatisticsInTheActivationType) {
  Both b;
  for (DType act : {DType::bf16, DType::f16}) {
    Divergence k(act, act, 3, 200);
    k.make_stats(b);
    k.run(b, 200, nullptr, 1);
    // Formed in fp32 and rounded once into the type of the statistics.
    expect_relative(k.loss, 1e-5 + 0.5 * (act == DType::bf16 ? 0x1p-7 : 0x1p-10), "divergence");
  }
}

TEST(Divergence, ThreadsDoNotShow) {
  on_every_target([&] {
    std::vector<std::vector<uint8_t>> results;
    for (int threads : {1, 3}) {
      const auto backend = make_tested_backend(threads);
      Divergence k(DType::f32, DType::f32, 70, 2000);
      Operand d(DType::f32, {70, 2000});
      backend->softmax_stats(k.stats.cpu, k.logits.cpu, k.nobody.cpu, 0, Accumulate::no);
      backend->softmax_stats(k.teacher_stats.cpu, k.teacher.cpu, k.nobody.cpu, 0, Accumulate::no);
      backend->divergence(k.loss.cpu, d.cpu, k.logits.cpu, k.stats.cpu, k.teacher.cpu,
                          k.teacher_stats.cpu, 0.5, Accumulate::no);
      results.push_back(d.bytes());
      results.push_back(k.loss.bytes());
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
  });
}

}  // namespace
}  // namespace nibble::test
