// SPDX-License-Identifier: MIT
// Every gradient of the reference backend against the complex step through the forward op: the
// imaginary part of f(x + ih) / h is the derivative to full precision.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "core/rng.h"
#include "ops/op_support.h"
#include "support/ref_backend.h"

namespace nibble::test {
namespace {

using C = std::complex<double>;
constexpr double kStep = 1e-30;
// Relative to the largest element of a gradient: sums of some hundred terms in double.
constexpr double kBound = 1e-13;

struct Array {
  std::vector<C> v;
  Tensor t;
  explicit Array(std::initializer_list<int64_t> shape, uint64_t seed = 0) {
    t = make_tensor(nullptr, DType::c128, shape);
    v.resize(size_t(t.numel()));
    t.data = reinterpret_cast<std::byte*>(v.data());
    for (size_t i = 0; seed != 0 && i < v.size(); ++i) v[i] = normal_pair(philox(seed, 0, i))[0];
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
};
struct Ids {
  std::vector<int32_t> v;
  Tensor t;
  Ids(std::vector<int32_t> values, std::initializer_list<int64_t> shape) : v(std::move(values)) {
    t = make_tensor(v.data(), DType::i32, shape);
  }
};

C dot(const Array& a, const Array& b) {
  return std::inner_product(a.v.begin(), a.v.end(), b.v.begin(), C{});
}

// Largest difference between `got` and the derivative of `loss` by every element of `x`.
double worst_error(Array& x, const Array& got, const std::function<C()>& loss) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < x.v.size(); ++i) {
    const C kept = x.v[i];
    x.v[i] += C(0, kStep);
    const double want = loss().imag() / kStep;
    x.v[i] = kept;
    worst = std::max(worst, std::abs(got.v[i] - want));
    largest = std::max(largest, std::abs(want));
  }
  EXPECT_GT(largest, 0) << "nothing to compare";
  return worst / largest;
}

class ComplexBack : public testing::Test {
 protected:
  Backend& b() { return backend_; }
  RefBackend<C> backend_;
};

TEST_F(ComplexBack, CrossEntropyWholeAndInPieces) {
  Array logits({4, 11}, 1), stats({4, 3}), loss({4}), d({4, 11});
  Ids targets({3, 10, -1, 0}, {4});
  const auto total = [&] {
    b().softmax_stats(stats.t, logits.t, targets.t, 0, Accumulate::no);
    b().cross_entropy(loss.t, stats.t, targets.t);
    return 0.3 * std::accumulate(loss.v.begin(), loss.v.end(), C{});
  };
  const C whole = total();
  b().cross_entropy_back(d.t, logits.t, stats.t, targets.t, 0, 0.3);
  EXPECT_LT(worst_error(logits, d, total), kBound);
  for (int i = 0; i < 11; ++i) EXPECT_EQ(d.v[size_t(2 * 11 + i)], C{});

  // Columns 0 to 3, 4 to 9 and 10 as pieces.
  Array pieces({4, 11});
  const auto each = [&](auto f) {
    for (auto [begin, n] : {std::pair{0, 4}, {4, 6}, {10, 1}}) f(begin, n);
  };
  const auto in_pieces = [&] {
    each([&](int64_t begin, int64_t n) {
      b().softmax_stats(stats.t, logits.t.columns(begin, n), targets.t, begin,
                        begin == 0 ? Accumulate::no : Accumulate::yes);
    });
    b().cross_entropy(loss.t, stats.t, targets.t);
    return 0.3 * std::accumulate(loss.v.begin(), loss.v.end(), C{});
  };
  EXPECT_LT(std::abs(in_pieces() - whole), 1e-14);
  each([&](int64_t begin, int64_t n) {
    b().cross_entropy_back(pieces.t.columns(begin, n), logits.t.columns(begin, n), stats.t,
                           targets.t, begin, 0.3);
  });
  EXPECT_LT(worst_error(logits, pieces, in_pieces), kBound);
}

TEST_F(ComplexBack, DivergenceWholeAndInPieces) {
  Array logits({3, 11}, 1), teacher({3, 11}, 2), stats({3, 3}), taught({3, 3}), loss({3}),
      d({3, 11});
  Ids nobody({-1, -1, -1}, {3});
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  const auto run = [&](const Pieces& pieces, Tensor gradient) {
    for (auto [begin, n] : pieces) {
      const Accumulate a = begin == 0 ? Accumulate::no : Accumulate::yes;
      b().softmax_stats(stats.t, logits.t.columns(begin, n), nobody.t, begin, a);
      b().softmax_stats(taught.t, teacher.t.columns(begin, n), nobody.t, begin, a);
    }
    for (auto [begin, n] : pieces) {
      b().divergence(loss.t, gradient ? gradient.columns(begin, n) : Tensor{},
                     logits.t.columns(begin, n), stats.t, teacher.t.columns(begin, n), taught.t,
                     0.3, begin == 0 ? Accumulate::no : Accumulate::yes);
    }
    return 0.3 * std::accumulate(loss.v.begin(), loss.v.end(), C{});
  };
  const Pieces whole{{0, 11}}, three{{0, 4}, {4, 6}, {10, 1}};
  EXPECT_LT(std::abs(run(whole, {}) - run(three, {})), 1e-14);
  for (const Pieces& pieces : {whole, three}) {
    EXPECT_GT(run(pieces, d.t).real(), 0);
    EXPECT_LT(worst_error(logits, d, [&] { return run(pieces, {}); }), kBound);
  }
}

TEST_F(ComplexBack, L1Loss) {
  Array h({3, 7}, 1), table({5, 7}, 2), loss({3}), d({3, 7}), unused({3, 7});
  Ids targets({4, -1, 0}, {3});
  const auto total = [&] {
    b().l1_loss(loss.t, unused.t, h.t, table.t, targets.t, 1.0);
    return 0.7 * std::accumulate(loss.v.begin(), loss.v.end(), C{});
  };
  b().l1_loss(loss.t, d.t, h.t, table.t, targets.t, 0.7);
  EXPECT_LT(worst_error(h, d, total), kBound);
  EXPECT_EQ(loss.v[1], C{});
}

TEST_F(ComplexBack, RmsNorm) {
  Array x({3, 2, 8}, 1), w({8}, 2), g({3, 2, 8}, 3), y({3, 2, 8}), rstd({6});
  Array dx({3, 2, 8}), dw({8}), base({3, 2, 8}, 4), shifted({3, 2, 8});
  const auto loss = [&] {
    b().rms_norm(y.t, rstd.t, x.t, w.t, 1e-3);
    return dot(g, y);
  };
  loss();
  b().rms_norm_back(dx.t, dw.t, g.t, x.t, rstd.t, w.t, {}, Accumulate::no);
  EXPECT_LT(worst_error(x, dx, loss), kBound);
  EXPECT_LT(worst_error(w, dw, loss), kBound);
  // base is added, dw accumulates, dx may lie on dy.
  Array twice({8});
  twice.v = dw.v;
  shifted.v = g.v;
  b().rms_norm_back(shifted.t, twice.t, shifted.t, x.t, rstd.t, w.t, base.t, Accumulate::yes);
  for (size_t i = 0; i < dx.v.size(); ++i) {
    EXPECT_LT(std::abs(shifted.v[i] - dx.v[i] - base.v[i]), 1e-14);
  }
  for (size_t i = 0; i < 8; ++i) EXPECT_LT(std::abs(twice.v[i] - 2.0 * dw.v[i]), 1e-14);
}

TEST_F(ComplexBack, NormRope) {
  Array x({3, 2, 8}, 1), w({8}, 2), g({3, 2, 8}, 3), y({3, 2, 8}), rstd({6}), table({3, 8});
  Array dx({3, 2, 8}), dw({8});
  Ids positions({0, 3, 100}, {3});
  b().rope_table(table.t, positions.t, turns_of(1e4, table.t));
  const auto loss = [&] {
    b().norm_rope(y.t, rstd.t, x.t, w.t, table.t, 1e-3);
    return dot(g, y);
  };
  loss();
  b().norm_rope_back(dx.t, dw.t, g.t, x.t, rstd.t, w.t, table.t, Accumulate::no);
  EXPECT_LT(worst_error(x, dx, loss), kBound);
  EXPECT_LT(worst_error(w, dw, loss), kBound);
}

TEST_F(ComplexBack, Attention) {
  Array q({9, 4, 6}, 1), k({9, 2, 6}, 2), v({9, 2, 6}, 3), g({9, 4, 6}, 4), out({9, 4, 6});
  Array lse({9, 4}), dq({9, 4, 6}), dk({9, 2, 6}), dv({9, 2, 6});
  Ids sequences({0, 5, 0, 5, 5, 1, 5, 1, 6, 3, 6, 3}, {3, 4});
  const auto loss = [&] {
    b().attention(out.t, lse.t, q.t, {k.t, v.t}, sequences.t);
    return dot(g, out);
  };
  loss();
  b().attention_back(dq.t, dk.t, dv.t, g.t, out.t, lse.t, q.t, {k.t, v.t}, sequences.t);
  EXPECT_LT(worst_error(q, dq, loss), kBound);
  EXPECT_LT(worst_error(k, dk, loss), kBound);
  EXPECT_LT(worst_error(v, dv, loss), kBound);
  // The comparison sees an error of 1e-11 in one element.
  dk.v[7] += 1e-11;
  EXPECT_GT(worst_error(k, dk, loss), kBound);
}

TEST_F(ComplexBack, Swiglu) {
  Array gate({3, 5}, 1), up({3, 5}, 2), g({3, 5}, 3), y({3, 5}), dgate({3, 5}), dup({3, 5});
  const auto loss = [&] {
    b().swiglu(y.t, gate.t, up.t);
    return dot(g, y);
  };
  b().swiglu_back(dgate.t, dup.t, g.t, gate.t, up.t);
  EXPECT_LT(worst_error(gate, dgate, loss), kBound);
  EXPECT_LT(worst_error(up, dup, loss), kBound);
}

TEST_F(ComplexBack, EmbedAndGather) {
  Array table({6, 4}, 1), g({5, 4}, 2), x({5, 4}), d({6, 4}, 3);
  Ids ids({2, 5, 2, 0, 2}, {5}), order({3, 0, 2, 4, 1}, {5});
  const auto loss = [&] {
    b().embed(x.t, table.t, ids.t);
    return dot(g, x);
  };
  b().embed_back(d.t, g.t, ids.t, order.t, {});
  EXPECT_LT(worst_error(table, d, loss), kBound);
  const std::vector<C> once = d.v;
  b().embed_back(d.t, g.t, ids.t, order.t, {.accumulate = Accumulate::yes});
  for (size_t i = 0; i < once.size(); ++i) EXPECT_LT(std::abs(d.v[i] - 2.0 * once[i]), 1e-14);

  Array rows({5, 4}, 4), taken({3, 4}), up({3, 4}, 5), drows({5, 4}, 6);
  Ids which({4, 0, 2}, {3});
  b().scatter_rows(drows.t, up.t, which.t);
  EXPECT_LT(worst_error(rows, drows,
                        [&] {
                          b().gather_rows(taken.t, rows.t, which.t);
                          return dot(up, taken);
                        }),
            kBound);
}

}  // namespace
}  // namespace nibble::test
