// SPDX-License-Identifier: MIT
// Gradient of attention against the reference: head ratios, widths, packed sequences, lengths
// around the blocks, and what may not show: threads and the other sequences of a batch.
#include "ops/back_support.h"

namespace nibble::test {
namespace {

struct Case {
  int64_t hq, hkv, d;
  std::vector<int32_t> lengths;
};

// Backends have kernels of their own for rows that begin at multiples of 16 bytes. They may round
// weights and the scores' gradients to the activations' type.
enum class Rows { unaligned, aligned };

struct Data {
  Operand q, k, v, dout, out, lse, dq, dk, dv, table;
  int64_t tokens = 0;

  Data(const Case& c, DType act, DType stat = DType::f32, Rows rows = Rows::unaligned) {
    for (int32_t n : c.lengths) tokens += n;
    const auto pad = [&](int64_t unaligned) { return rows == Rows::aligned ? 8 : unaligned; };
    q = Operand(act, {tokens, c.hq, c.d}, 8), out = Operand(act, {tokens, c.hq, c.d}, pad(3));
    k = Operand(act, {tokens, c.hkv, c.d}, pad(5)), v = Operand(act, {tokens, c.hkv, c.d}, pad(5));
    dout = Operand(act, {tokens, c.hq, c.d}, pad(2)),
    dq = Operand(act, {tokens, c.hq, c.d}, pad(7));
    dk = Operand(act, {tokens, c.hkv, c.d}, pad(4)),
    dv = Operand(act, {tokens, c.hkv, c.d}, pad(9));
    lse = Operand(stat, {tokens, c.hq});
    table = packed_sequences(c.lengths);
    q.normal(1, 1.5), k.normal(2), v.normal(3), dout.normal(4);
    RefBackend<double> ref;
    static_cast<Backend&>(ref).attention(out.ref, lse.ref, q.ref, {k.ref, v.ref}, table.ref);
    adopt_reference(out), adopt_reference(lse);
  }
  void run(Backend& cpu) {
    cpu.attention_back(dq.cpu, dk.cpu, dv.cpu, dout.cpu, out.cpu, lse.cpu, q.cpu, {k.cpu, v.cpu},
                       table.cpu);
  }
};

double largest_norm(const Operand& o, int64_t width) {
  const auto v = o.ref_values();
  double largest = 0;
  for (size_t i = 0; i < v.size(); i += size_t(width)) {
    double sum = 0;
    for (size_t j = i; j < i + size_t(width); ++j) sum += v[j] * v[j];
    largest = std::max(largest, std::sqrt(sum));
  }
  return largest;
}
double largest(const Operand& o) {
  double m = 0;
  for (double v : o.ref_values()) m = std::max(m, std::abs(v));
  return m;
}

// [token, key head]: the probabilities that fall on a key, over all queries that see it.
std::vector<double> weight_on_keys(const Data& d, const Case& c) {
  std::vector<double> sums(size_t(d.tokens * c.hkv), 0);
  int64_t begin = 0;
  for (int64_t n : c.lengths) {
    for (int64_t i = begin; i < begin + n; ++i) {
      for (int64_t h = 0; h < c.hq; ++h) {
        const int64_t kh = h / (c.hq / c.hkv);
        for (int64_t j = begin; j <= i; ++j) {
          double s = 0;
          for (int64_t e = 0; e < c.d; ++e) {
            s += d.q.ref.row<double>(i)[h * c.d + e] * d.k.ref.row<double>(j)[kh * c.d + e];
          }
          sums[size_t(j * c.hkv + kh)] +=
              std::exp(s / std::sqrt(double(c.d)) - d.lse.ref.row<double>(i)[h]);
        }
      }
    }
    begin += n;
  }
  return sums;
}

void check(Both& b, const Case& c, DType act, DType stat = DType::f32,
           Rows layout = Rows::unaligned) {
  Data d(c, act, stat, layout);
  d.run(*b.cpu);
  b.reference().attention_back(d.dq.ref, d.dk.ref, d.dv.ref, d.dout.ref, d.out.ref, d.lse.ref,
                               d.q.ref, {d.k.ref, d.v.ref}, d.table.ref);
  const double width = double(c.d), scale = 1 / std::sqrt(width);
  const double keys = *std::max_element(c.lengths.begin(), c.lengths.end());
  const double rows = keys * double(c.hq / c.hkv);
  // A score is a dot product of depth d; p = exp(score - lse) has that absolute error as a relative
  // one, that of the argument and exp's own. dout . v and dout . out are dot products below
  // `product`; d score = p (one - the other) scale.
  const double score = largest_norm(d.q, c.d) * largest_norm(d.k, c.d) * scale;
  const double p = (width + 3) * score + 2 * score + 10;
  const double product =
      largest_norm(d.dout, c.d) * std::max(largest_norm(d.v, c.d), largest_norm(d.out, c.d));
  const double ds = product * scale * (2 * p + 2 * width + 16);
  // Probabilities of a query sum to 1 (but for what lse was rounded by); those on a key do not.
  const auto on_keys = weight_on_keys(d, c);
  const double slack = 1.01 + 40 * storage_roundoff(stat);
  const double q = largest(d.q), k = largest(d.k), dout = largest(d.dout);
  // Relative and absolute error of a rounded weight; gradients of scores are at most 2 product
  // times the weight, and scaled after the sum.
  const bool aligned = layout == Rows::aligned;
  const double round = aligned ? storage_roundoff(act) : 0, step = aligned ? storage_floor(act) : 0;
  expect_close(
      d.dq,
      [&](int64_t) {
        return kRoundoff * slack * k * (ds + 2 * keys * product * scale) +
               scale * k * (2 * round * slack * product + keys * step);
      },
      "dq");
  expect_close(
      d.dk,
      [&](int64_t i) {
        const double weight = on_keys[size_t(i / c.d)];
        return kRoundoff * weight * q * (ds + 2 * rows * product * scale) +
               scale * q * (2 * round * weight * product + rows * step);
      },
      "dk");
  expect_close(
      d.dv,
      [&](int64_t i) {
        const double weight = on_keys[size_t(i / c.d)];
        return kRoundoff * weight * dout * (p + rows + 4) + dout * (round * weight + rows * step);
      },
      "dv");
}

const std::vector<Case> kCases = {
    {1, 1, 16, {1}},              // one token
    {4, 4, 32, {70}},             // ratio 1
    {4, 2, 64, {67}},             // ratio 2, past a block of keys
    {8, 2, 128, {33}},            // ratio 4, past a block of queries
    {8, 1, 16, {3, 64, 1, 129}},  // ratio 8, packed
    {3, 1, 20, {2, 9}},           // a ratio and a width that divide nothing
    {2, 2, 8, {128, 65, 63}},     // lengths around the blocks
    {6, 2, 80, {40}},             // five vectors
};

TEST(AttentionBack, MatchesTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(std::to_string(c.hq) + "/" + std::to_string(c.hkv) + " x " +
                   std::to_string(c.d));
      check(b, c, act);
    }
  });
}

TEST(AttentionBack, AlignedRows) {
  const std::vector<Case> cases = {
      {2, 1, 128, {1}},
      {4, 2, 128, {64}},
      {4, 1, 64, {67}},
      {4, 1, 128, {3, 64, 1, 129}},
      {6, 2, 64, {130}},
      {2, 2, 128, {128, 65, 63}},
      {4, 1, 128, {500, 1, 300}},
      // Head counts of real models: ratios 7, 3, 6, and 5, within a tile and beyond.
      {14, 2, 64, {1}},
      {14, 2, 64, {96}},
      {14, 2, 64, {130, 70}},
      {9, 3, 64, {128}},
      {9, 3, 64, {500, 1, 90}},
      {12, 2, 128, {100}},
      {12, 2, 128, {70, 190}},
      {5, 1, 64, {3, 64, 1, 59}},
      {8, 1, 64, {65, 60}},
      {4, 2, 64, {128}},
  };
  Both b;
  for (DType act : kActTypes) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(dtype_name(act)) + " " + std::to_string(c.hq) + "/" +
                   std::to_string(c.hkv) + " x " + std::to_string(c.d) + ", " +
                   std::to_string(c.lengths[0]));
      check(b, c, act, DType::f32, Rows::aligned);
    }
  }
}

TEST(AttentionBack, LogSumsInTheActivationType) {
  Both b;
  check(b, {4, 2, 32, {40, 7}}, DType::bf16, DType::bf16);
  check(b, {4, 2, 32, {40, 7}}, DType::f16, DType::f16);
}

TEST(AttentionBack, SeveralPiecesOfASequence) {
  Both b;
  check(b, {2, 1, 64, {700}}, DType::f32);
  check(b, {16, 1, 16, {100}}, DType::f32);
}

TEST(AttentionBack, ThreadsDoNotShow) {
  for (const Case& c : {Case{8, 2, 64, {150, 20, 300}}, Case{2, 1, 32, {1000}}}) {
    for (const DType act : {DType::f32, DType::bf16}) {
      Data one(c, act), three(c, act);
      on_every_target([&] {
        one.run(*make_tested_backend(1));
        three.run(*make_tested_backend(3));
        EXPECT_EQ(one.dq.bytes(), three.dq.bytes());
        EXPECT_EQ(one.dk.bytes(), three.dk.bytes());
        EXPECT_EQ(one.dv.bytes(), three.dv.bytes());
      });
    }
  }
}

// Pairs of bf16 are summed in the order of floats (kernels/gemm.h).
TEST(AttentionBack, PairsHaveTheBitsOfFloatsWhateverTheThreads) {
  const auto targets = cpu::available_targets();
  if (testing_cuda() || targets.front() != "AVX3_BF16") GTEST_SKIP() << "no products of pairs";
  for (const Case& c : kCases) {
    Data pairs(c, DType::bf16), floats(c, DType::bf16);
    pairs.run(*make_cpu_backend(2));
    cpu::select_target("AVX3");
    floats.run(*make_cpu_backend(2));
    cpu::select_target("");
    EXPECT_EQ(pairs.dq.bytes(), floats.dq.bytes());
    EXPECT_EQ(pairs.dk.bytes(), floats.dk.bytes());
    EXPECT_EQ(pairs.dv.bytes(), floats.dv.bytes());
  }
}

TEST(AttentionBack, PackedSequencesAreThoseOfEach) {
  const auto backend = make_tested_backend(2);
  const Case c{4, 2, 32, {150, 1, 64, 90}};
  Data together(c, DType::f32), alone(c, DType::f32);
  together.run(*backend);
  int32_t begin = 0;
  for (int32_t n : c.lengths) {
    alone.table = sequence_operand({{begin, n, begin, n}});
    alone.run(*backend);
    begin += n;
  }
  EXPECT_EQ(together.dq.bytes(), alone.dq.bytes());
  EXPECT_EQ(together.dk.bytes(), alone.dk.bytes());
  EXPECT_EQ(together.dv.bytes(), alone.dv.bytes());
}

// Another sequence of the batch that has gone bad stays its own problem.
TEST(AttentionBack, NanStaysInItsSequence) {
  on_every_target([&] {
    Data d({2, 1, 16, {5, 4, 6}}, DType::f32);
    for (int64_t i = 0; i < 16; ++i) {
      d.k.cpu.row<float>(6)[i] = d.v.cpu.row<float>(7)[i] = d.dout.cpu.row<float>(8)[i] = NAN;
    }
    d.run(*make_tested_backend(1));
    for (int64_t n = 0; n < 15; ++n) {
      if (n >= 5 && n < 9) continue;
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_TRUE(std::isfinite(d.dq.cpu.row<float>(n)[i])) << n;
        EXPECT_TRUE(std::isfinite(d.dk.cpu.row<float>(n)[i])) << n;
        EXPECT_TRUE(std::isfinite(d.dv.cpu.row<float>(n)[i])) << n;
      }
    }
  });
}

// A limit of the CPU backend.
TEST(AttentionBack, ManyHeadsOnOneKeyHeadAreRefusedByName) {
  Data d({200, 1, 4, {2}}, DType::f32);
  EXPECT_THROW(d.run(*make_cpu_backend(1)), InternalError);
}

// The products dout . out have kernels of their own for aligned rows; nothing else reads out.
TEST(AttentionBack, BitsDoNotDependOnWhereTheOutputLies) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Case& c : {Case{4, 2, 128, {37, 5}}, Case{7, 1, 64, {37, 5}}}) {
      Data d(c, act, DType::f32, Rows::aligned);
      d.run(*b.cpu);
      const auto dq = d.dq.bytes(), dk = d.dk.bytes(), dv = d.dv.bytes();
      Operand moved(act, {d.tokens, c.hq, c.d}, 3);
      const auto values = d.out.cpu_values();
      moved.fill([&](int64_t i) { return values[size_t(i)]; });
      d.out = std::move(moved);
      d.run(*b.cpu);
      EXPECT_EQ(d.dq.bytes(), dq);
      EXPECT_EQ(d.dk.bytes(), dk);
      EXPECT_EQ(d.dv.bytes(), dv);
    }
  });
}

}  // namespace
}  // namespace nibble::test
