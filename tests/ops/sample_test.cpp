// SPDX-License-Identifier: MIT
// The choice of a token: backends against the definition, exactly; the definition's own promises.
#include <algorithm>
#include <limits>
#include <set>

#include "ops/op_support.h"

namespace nibble::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Logits [N, V] (rows apart by `padding`), a table of rows and a context.
struct Call {
  Operand logits;
  std::vector<SampleRow> rows;
  std::vector<int32_t> context;

  Call(int64_t n, int64_t v, int64_t padding = 0)
      : logits(DType::f32, {n, v}, padding), rows(size_t(n)) {}
  std::vector<int32_t> run(Backend& backend, Tensor values, Choice choice) {
    std::vector<int32_t> out(rows.size(), -9);
    const int64_t n = int64_t(rows.size());
    Tensor seen;
    if (!context.empty()) seen = make_tensor(context.data(), DType::i32, {int64_t(context.size())});
    backend.sample(make_tensor(out.data(), DType::i32, {n}), values,
                   make_tensor(rows.data(), DType::i32, {n, 16}), seen, choice);
    return out;
  }
  void expect_same(Both& b, const std::string& what, Choice choice = Choice::any) {
    const auto got = run(*b.cpu, logits.cpu, choice);
    const auto want = run(b.reference(), logits.ref, choice);
    EXPECT_EQ(got, want) << what;
  }
};

SampleRow random_row(uint64_t seed) {
  const auto pick = [&](uint64_t k, auto... values) {
    const double list[] = {double(values)...};
    return list[philox(seed, 1, k)[0] % sizeof...(values)];
  };
  SampleRow r;
  r.temperature = pick(0, 0, 0.01, 0.6, 0.6, 1, 1.7, 50);
  r.top_p = pick(1, 1, 0.95, 0.8, 0.5, 0.01);
  r.top_k = int64_t(pick(2, 0, 0, 1, 2, 20, 100, 1000));
  r.min_p = pick(3, 0, 0, 0.05, 1);
  r.seed = philox(seed, 2, 0)[0];
  r.draw = philox(seed, 2, 1)[0] % 1000;
  return r;
}

// Values of several shapes: spread, many equals, a few far ahead.
float random_logit(uint64_t seed, int64_t i) {
  const double z = normal_pair(philox(seed, 3, uint64_t(i)))[0];
  switch (seed % 5) {
    case 0: return float(3 * z);
    case 1: return float(int(philox(seed, 4, uint64_t(i))[0] % 7));
    case 2: return 1.0f;
    case 3: return float(20 + 8 * z);
    default: return float(int(z * 4)) * 0.25f;
  }
}

TEST(Sample, EveryMixOfOptionsMatchesTheDefinition) {
  Both b;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const int64_t sizes[] = {1, 5, 33, 511, 513, 1500, 9000};
    const int64_t v = sizes[philox(seed, 5, 0)[0] % 7], n = 1 + int64_t(seed % 3);
    Call call(n, v, int64_t(seed % 4));
    call.logits.fill([&](int64_t i) { return double(random_logit(seed, i)); });
    for (size_t i = 0; i < call.rows.size(); ++i) call.rows[i] = random_row(8 * seed + i);
    call.expect_same(b, "seed " + std::to_string(seed));
  }
}

// The shape of a real vocabulary, where blocks share a row.
TEST(Sample, LargeVocabulary) {
  Both b;
  for (uint64_t seed : {0u, 3u, 4u}) {
    Call call(4, 151936);
    call.logits.fill([&](int64_t i) { return double(random_logit(seed, i)); });
    for (auto& r : call.rows) r.temperature = 0.7, r.seed = seed;
    call.rows[1].top_k = 20, call.rows[1].top_p = 0.95;
    call.rows[2].top_p = 0.9;
    call.rows[3].top_k = 5000, call.rows[3].min_p = 0.01;
    call.expect_same(b, "seed " + std::to_string(seed));
  }
}

// One weight spread over all of a large vocabulary: every token is in a bin with a cut.
TEST(Sample, EqualLogitsStandOrFallTogether) {
  Both b;
  Call call(3, 20000);
  call.logits.fill([&](int64_t i) { return i % 20000 == 77 ? 3.0 : 1.0; });
  for (auto& r : call.rows) r.temperature = 1;
  call.rows[0].top_k = 5;
  call.rows[1].top_p = 0.5;
  call.rows[2].top_k = 1;
  std::set<int32_t> seen;
  for (uint64_t draw = 0; draw < 40; ++draw) {
    for (auto& r : call.rows) r.draw = draw;
    call.expect_same(b, "draw " + std::to_string(draw));
    const auto ids = call.run(*b.cpu, call.logits.cpu, Choice::any);
    EXPECT_EQ(ids[2], 77);  // the one largest
    seen.insert(ids[0]);
  }
  EXPECT_GT(seen.size(), 30u);  // the second place is shared by 19,999
}

TEST(Sample, GreedyTakesTheLowestIdOfTheLargest) {
  Both b;
  for (int64_t v : {1, 2, 31, 500, 1024, 1025, 70000}) {
    for (int64_t first : {int64_t(0), v / 2, v - 1}) {
      Call call(2, v, 3);
      call.logits.fill([&](int64_t i) { return i % v >= first ? 2.5 : -1.0; });
      for (const Choice choice : {Choice::greedy, Choice::any}) {
        EXPECT_EQ(call.run(*b.cpu, call.logits.cpu, choice),
                  std::vector<int32_t>(2, int32_t(first)));
      }
    }
  }
}

TEST(Sample, NothingToChoose) {
  Both b;
  const auto chosen = [&](std::vector<float> values, double temperature, Choice choice) {
    Call call(1, int64_t(values.size()));
    std::copy(values.begin(), values.end(), call.logits.cpu.as<float>());
    call.rows[0].temperature = temperature;
    call.rows[0].top_k = 2;
    return call.run(*b.cpu, call.logits.cpu, choice)[0];
  };
  for (const auto& [temperature, choice] : std::vector<std::pair<double, Choice>>{
           {0, Choice::greedy}, {0, Choice::any}, {1e-9, Choice::any}}) {
    EXPECT_EQ(chosen({NAN, NAN, NAN}, temperature, choice), -1);
    EXPECT_EQ(chosen({-kInf, NAN}, temperature, choice), -1);
    EXPECT_EQ(chosen({-kInf, -kInf}, temperature, choice), -1);
    EXPECT_EQ(chosen({0, kInf, 1}, temperature, choice), -1);
    EXPECT_EQ(chosen({NAN, -kInf, -3, NAN, -4}, temperature, choice), 2);
    EXPECT_EQ(chosen({-0.0f, 0.0f, -1}, temperature, Choice::greedy), 0);
    EXPECT_EQ(chosen({3e38f, -3e38f}, temperature, choice), 0);
  }
}

TEST(Sample, PenaltyLooksAtEachTokenOfTheContextOnce) {
  Both b;
  Call call(3, 600);
  call.logits.fill([](int64_t i) { return std::sin(double(i)) * 4; });
  call.context = {1, 2, 3, 3, 3, 599, 14, 14, 7, -1, 600, 100, 101, 102, 103};
  for (size_t i = 0; i < 3; ++i) {
    call.rows[i].repetition_penalty = i == 1 ? 1.0 : 1.5;
    call.rows[i].temperature = i == 2 ? 0.8 : 0;
    call.rows[i].top_p = 0.9;
    call.rows[i].context_begin = int32_t(2 * i);
    call.rows[i].context_length = int32_t(9 - i);
  }
  for (uint64_t draw = 0; draw < 20; ++draw) {
    for (auto& r : call.rows) r.draw = draw;
    call.expect_same(b, "draw " + std::to_string(draw));
  }
  // 14 has the largest logit (sin 14 = 0.9906) and is in the first row's context.
  EXPECT_NE(call.run(*b.cpu, call.logits.cpu, Choice::any)[0], 14);
}

// exp of the rule against the library's: within 2^-50 and the truncation to whole weights.
TEST(Sample, WeightsAreTheExponential) {
  EXPECT_EQ(sample_weight(0), kSampleOne);
  EXPECT_EQ(sample_weight(-kInf), 0u);
  EXPECT_EQ(sample_weight(NAN), 0u);
  EXPECT_EQ(sample_weight(-31), 0u);
  for (int i = 1; i < 40000; ++i) {
    const double x = -double(i) / 1300, want = std::exp(x) * double(kSampleOne);
    const double got = double(sample_weight(x));
    EXPECT_LE(got, want * (1 + 0x1p-50)) << x;
    EXPECT_GE(got, want * (1 - 0x1p-50) - 1) << x;
  }
}

TEST(Sample, KeysAreInOrder) {
  const float values[] = {-kInf, -3e38f, -1.5f, -1e-40f, 0.0f, 1e-40f, 2.0f, 3e38f, kInf};
  for (size_t i = 0; i + 1 < std::size(values); ++i) {
    EXPECT_LT(sample_key(values[i]), sample_key(values[i + 1]));
    EXPECT_EQ(sample_logit(sample_key(values[i])), values[i]);
  }
  EXPECT_EQ(sample_key(-0.0f), sample_key(0.0f));
  EXPECT_EQ(sample_key(NAN), 0u);
  EXPECT_FALSE(sample_finite(sample_key(kInf)) || sample_finite(sample_key(-kInf)));
}

// The upper half of a 64 by 64 bit product, against the compiler's own.
TEST(Sample, PointsCoverTheMassEvenly) {
  for (const uint64_t mass : {uint64_t(1), uint64_t(3), kSampleOne, (uint64_t(1) << 63) + 12345}) {
    int low = 0;
    for (uint64_t draw = 0; draw < 4000; ++draw) {
      const uint64_t p = draw_point(9, draw, mass);
      ASSERT_LT(p, mass);
      const auto r = philox(9, 0, draw);
      const uint64_t u = uint64_t(r[0]) << 32 | r[1];
      EXPECT_EQ(p, uint64_t(static_cast<unsigned __int128>(u) * mass >> 64));
      low += p < mass / 2 + mass % 2;
    }
    if (mass > 3) {
      EXPECT_NEAR(low, 2000, 4 * std::sqrt(1000.0));
    }
  }
}

}  // namespace
}  // namespace nibble::test
