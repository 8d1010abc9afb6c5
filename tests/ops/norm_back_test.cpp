// SPDX-License-Identifier: MIT
// Gradients of RMS norm and of norm and rotation against the reference: aliases, bases, strides,
// accumulated weight gradients, and the fused form against the plain ones.
#include "ops/back_support.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, heads, d, padding;
};
constexpr Shape kShapes[] = {{1, 1, 2, 0},   {1, 1, 16, 0},  {3, 2, 32, 5},   {2, 3, 38, 0},
                             {5, 4, 64, 16}, {7, 8, 128, 3}, {1, 1, 2560, 0}, {19, 1, 1000, 1}};
constexpr double kEps = 1e-6;

enum class Alias { none, dy, base };

struct NormCase {
  Shape s;
  DType act, grad;  // grad: of dy
  bool with_base, with_dw;
  Alias alias;
  Accumulate accumulate;
};

// Operands of one call. Magnitudes that the bounds need are taken from the reference's numbers
// before the call, because an alias overwrites them.
struct NormBackData {
  Operand x, dx, dy, base, w, rstd, dw;

  explicit NormBackData(const NormCase& c)
      : x(c.act, {c.s.n, c.s.heads, c.s.d}, c.s.padding),
        dx(c.act, {c.s.n, c.s.heads, c.s.d}, 4),
        dy(c.grad, {c.s.n, c.s.heads, c.s.d}, 2 * c.s.padding),
        base(c.act, {c.s.n, c.s.heads, c.s.d}, 1),
        w(DType::f32, {c.s.d}),
        rstd(DType::f32, {c.s.n * c.s.heads}),
        dw(DType::f32, {c.s.d}) {
    x.normal(1, 3.0), dy.normal(2), base.normal(3), w.normal(4), dw.normal(5);
    Operand y(c.act, {c.s.n, c.s.heads, c.s.d});
    RefBackend<double> ref;
    static_cast<Backend&>(ref).rms_norm(y.ref, rstd.ref, x.ref, w.ref, kEps);
    adopt_reference(rstd);
  }
};

struct NormBounds {
  std::vector<double> dx, dw;
};
// dot = sum of dy w x in at least four lanes; c = dot r^2 / n; dx = base + r (dy w - x c); a
// handful of roundings around them. dw: one sum over all rows, whatever the chunks.
NormBounds bounds(const NormBackData& d, const NormCase& c, const std::vector<double>& dy) {
  const int64_t n = c.s.d, rows = c.s.n * c.s.heads;
  const auto x = d.x.ref_values(), w = d.w.ref_values(), r = d.rstd.ref_values();
  const auto base = d.base.ref_values(), dw = d.dw.ref_values();
  NormBounds b;
  b.dw.assign(size_t(n), 0);
  for (int64_t i = 0; i < rows; ++i) {
    double dot = 0;
    for (int64_t k = 0; k < n; ++k) {
      dot += std::abs(dy[size_t(i * n + k)] * w[size_t(k)] * x[size_t(i * n + k)]);
    }
    const double ri = r[size_t(i)], share = dot * ri * ri / double(n);
    for (int64_t k = 0; k < n; ++k) {
      const size_t at = size_t(i * n + k);
      const double direct = std::abs(dy[at] * w[size_t(k)]), around = std::abs(x[at]) * share;
      double limit = ri * (4 * direct + (double(n / 4 + 8) + 8) * around);
      if (c.with_base) limit += std::abs(base[at]) + ri * (direct + around);
      b.dx.push_back(limit * kRoundoff);
      b.dw[size_t(k)] += std::abs(dy[at] * x[at] * ri) * double(rows + 4) * kRoundoff;
    }
  }
  for (size_t k = 0; k < b.dw.size(); ++k) b.dw[k] += std::abs(dw[k]) * kRoundoff;
  return b;
}

void check(Both& b, const NormCase& c) {
  NormBackData d(c);
  const NormBounds limit = bounds(d, c, d.dy.ref_values());
  Operand& out = c.alias == Alias::dy ? d.dy : c.alias == Alias::base ? d.base : d.dx;
  b.cpu->rms_norm_back(out.cpu, c.with_dw ? d.dw.cpu : Tensor{}, d.dy.cpu, d.x.cpu, d.rstd.cpu,
                       d.w.cpu, c.with_base ? d.base.cpu : Tensor{}, c.accumulate);
  b.reference().rms_norm_back(out.ref, c.with_dw ? d.dw.ref : Tensor{}, d.dy.ref, d.x.ref,
                              d.rstd.ref, d.w.ref, c.with_base ? d.base.ref : Tensor{},
                              c.accumulate);
  expect_close(
      out, [&](int64_t i) { return limit.dx[size_t(i)]; }, "dx");
  if (c.with_dw) {
    expect_close(
        d.dw, [&](int64_t i) { return limit.dw[size_t(i)]; }, "dw");
  }
}

TEST(NormBack, MatchesTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(s.d);
      check(b, {s, act, act, false, true, Alias::none, Accumulate::no});
      check(b, {s, act, act, true, true, Alias::none, Accumulate::yes});
      check(b, {s, act, act, true, false, Alias::dy, Accumulate::no});
      check(b, {s, act, act, true, true, Alias::base, Accumulate::yes});
      check(b, {s, act, act, false, false, Alias::dy, Accumulate::no});
      check(b, {s, act, DType::f32, true, true, Alias::base, Accumulate::no});
    }
  });
}

// More rows than a chunk holds, and more than all chunks of the smallest size hold.
TEST(NormBack, WeightGradientOverManyRows) {
  Both b;
  for (int64_t n : {16, 17, 160, 1024, 1025, 1100}) {
    SCOPED_TRACE(n);
    check(b, {{n, 2, 20, 0}, DType::f32, DType::f32, false, true, Alias::none, Accumulate::no});
  }
}

// More rows than any grid takes at once, heads of each width with threads of their own, and rows
// wider than one block's threads.
TEST(NormBack, RowsBeyondOneSweep) {
  Both b;
  check(b, {{4300, 2, 128, 0}, DType::bf16, DType::bf16, false, true, Alias::none, Accumulate::no});
  check(b, {{900, 1, 512, 8}, DType::bf16, DType::bf16, true, true, Alias::none, Accumulate::yes});
  for (const int64_t width : {64, 256}) {
    check(b, {{40, 3, width, 0}, DType::f32, DType::f32, false, true, Alias::none, Accumulate::no});
  }
  check(b, {{3, 1, 5120, 0}, DType::bf16, DType::bf16, true, true, Alias::none, Accumulate::no});
}

TEST(NormBack, StatisticsInTheActivationType) {
  Both b;
  on_every_target([&] {
    for (DType act : {DType::bf16, DType::f16}) {
      for (Accumulate a : {Accumulate::no, Accumulate::yes}) {
        const NormCase c{{5, 2, 24, 0}, act, act, false, true, Alias::none, a};
        NormBackData d(c);
        Operand rstd(act, {10}), w(act, {24}), dw(act, {24});
        rstd.fill([&](int64_t i) { return read_element(d.rstd.ref, i, 0); });
        w.normal(4), dw.normal(5);
        d.rstd = std::move(rstd), d.w = std::move(w), d.dw = std::move(dw);
        const NormBounds limit = bounds(d, c, d.dy.ref_values());
        b.cpu->rms_norm_back(d.dx.cpu, d.dw.cpu, d.dy.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu, {}, a);
        b.reference().rms_norm_back(d.dx.ref, d.dw.ref, d.dy.ref, d.x.ref, d.rstd.ref, d.w.ref, {},
                                    a);
        expect_close(
            d.dx, [&](int64_t i) { return limit.dx[size_t(i)]; }, "dx");
        expect_close(
            d.dw, [&](int64_t i) { return limit.dw[size_t(i)]; }, "dw");
      }
    }
  });
}

TEST(NormBack, NormRopeBackIsRopeThenNormBack) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (bool in_place : {false, true}) {
        for (DType table_type : {DType::f32, act}) {
          const NormCase c{s, act, act, false, true, Alias::none, Accumulate::yes};
          NormBackData d(c);
          Operand table(table_type, {s.n, s.d}), positions(DType::i32, {s.n});
          positions.fill([](int64_t i) { return double(i * 11); });
          b.cpu->rope_table(table.cpu, positions.cpu, turns_of(1e4, table.cpu));
          Operand plain(act, {s.n, s.heads, s.d}, 1), plain_dw(DType::f32, {s.d});
          plain_dw.normal(5);
          b.cpu->rope(plain.cpu, d.dy.cpu, table.cpu, Rotation::backward);
          b.cpu->rms_norm_back(plain.cpu, plain_dw.cpu, plain.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu, {},
                               Accumulate::yes);
          Operand& out = in_place ? d.dy : d.dx;
          b.cpu->norm_rope_back(out.cpu, d.dw.cpu, d.dy.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu,
                                table.cpu, Accumulate::yes);
          EXPECT_EQ(out.bytes(), plain.bytes());
          EXPECT_EQ(d.dw.bytes(), plain_dw.bytes());
          EXPECT_TRUE(out.intact());
        }
      }
    }
  });
}

// The fused form and its default share the rotation, so one of them is held to the reference.
TEST(NormBack, NormRopeBackMatchesTheReference) {
  Both b;
  on_every_target([&] {
    const NormCase c{{7, 3, 64, 3}, DType::f32,  DType::f32,    false,
                     true,          Alias::none, Accumulate::no};
    NormBackData d(c);
    Operand table(DType::f32, {7, 64}), positions(DType::i32, {7});
    positions.fill([](int64_t i) { return double(i * 5); });
    b.reference().rope_table(table.ref, positions.ref, turns_of(1e4, table.ref));
    adopt_reference(table);
    // A rotated element is two products, off by at most 3 roundings of |a| + |b|, |dy| < 6.
    const NormBounds limit = bounds(d, c, std::vector<double>(7 * 3 * 64, 12.0));
    b.cpu->norm_rope_back(d.dx.cpu, {}, d.dy.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu, table.cpu,
                          Accumulate::no);
    b.reference().norm_rope_back(d.dx.ref, {}, d.dy.ref, d.x.ref, d.rstd.ref, d.w.ref, table.ref,
                                 Accumulate::no);
    expect_close(
        d.dx, [&](int64_t i) { return 2 * limit.dx[size_t(i)]; }, "dx");
  });
}

TEST(NormBack, ThreadsDoNotShow) {
  on_every_target([&] {
    const NormCase c{{333, 3, 100, 0}, DType::f32,     DType::f32, true, true,
                     Alias::none,      Accumulate::yes};
    std::vector<std::vector<uint8_t>> results;
    for (int threads : {1, 3}) {
      const auto backend = make_tested_backend(threads);
      NormBackData d(c);
      Operand table(DType::f32, {333, 100});
      table.normal(7);
      backend->rms_norm_back(d.dx.cpu, d.dw.cpu, d.dy.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu, d.base.cpu,
                             Accumulate::yes);
      results.push_back(d.dx.bytes()), results.push_back(d.dw.bytes());
      backend->norm_rope_back(d.dx.cpu, d.dw.cpu, d.dy.cpu, d.x.cpu, d.rstd.cpu, d.w.cpu, table.cpu,
                              Accumulate::no);
      results.push_back(d.dx.bytes()), results.push_back(d.dw.bytes());
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i], results[i + 4]) << i;
  });
}

}  // namespace
}  // namespace nibble::test
