// SPDX-License-Identifier: MIT
// The storage of Adam's moments: every code, the nearest and the stochastic rules, zero and tiny
// values, and layouts. Expectations are formed in double from the text of docs/numerics.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/moments.h"

namespace nibble::test {
namespace {

constexpr MomentFormat kFormats[] = {MomentFormat::f32, MomentFormat::bf16, MomentFormat::int8,
                                     MomentFormat::int8_linear, MomentFormat::nvfp4};

double dynamic_magnitude(int code) {  // from the text
  if (code == 0) return 0;
  const int i = int(std::floor(std::log2(code))), n = 1 << i, k = code - n;
  const double decade = std::pow(10.0, i - 6), first = decade * (0.1 + 0.45 / n);
  return first + k * (i < 6 ? 0.9 * decade / n : (1 - first) / (n - 1));
}
float dynamic(int code) { return dynamic_value(kDynamicMap, uint8_t(code)); }

TEST(Moments, DynamicMapHoldsTheValuesOfItsText) {
  for (int c = 0; c < 128; ++c) {
    const double want = dynamic_magnitude(c);
    EXPECT_NEAR(dynamic(c), want, 2e-6 * want) << c;  // up to 8 times its last bit is cancelled
    EXPECT_EQ(dynamic(c + 128), -dynamic(c));
    if (c > 0) {
      EXPECT_GT(dynamic(c), dynamic(c - 1));
    }
  }
  EXPECT_EQ(dynamic(0), 0);
  EXPECT_EQ(dynamic(127), 1);
  EXPECT_EQ(dynamic(255), -1);
}

TEST(Moments, DynamicCodesRoundTripAndAreNearest) {
  for (int c = 0; c < 256; ++c) EXPECT_EQ(dynamic_code(kDynamicMap, dynamic(c)), c);
  for (uint32_t u = 0x34000000u; u <= 0x3f800000u; u += 997) {
    const float r = __builtin_bit_cast(float, u);
    const int c = dynamic_code(kDynamicMap, r);
    const double error = std::abs(double(dynamic(c)) - double(r));
    for (int other : {c - 1, c + 1}) {
      if (other < 0 || other > 127) continue;
      // Where neither is nearer by 1e-4 of their distance, rounding decides.
      const double distance = std::abs(double(dynamic(other)) - double(dynamic(c)));
      EXPECT_LE(error, std::abs(double(dynamic(other)) - double(r)) + 1e-4 * distance) << r;
    }
    EXPECT_EQ(dynamic_code(kDynamicMap, -r), c + 128);
  }
  EXPECT_EQ(dynamic_code(kDynamicMap, 0.0f), 0);
  EXPECT_EQ(dynamic_code(kDynamicMap, 1e-30f), 0);
  EXPECT_EQ(dynamic_code(kDynamicMap, INFINITY), 127);
}

TEST(Moments, LogCodesRoundTripWhateverTheRandomBits) {
  for (int c = 0; c < 256; ++c) {
    EXPECT_NEAR(log_value(kLogMap, uint8_t(c)) / std::exp2(-c / 8.0), 1, 1e-7);
    for (float scale : {1.0f, 0.3f, 3e-20f, 7e11f}) {
      const float v = log_value(kLogMap, uint8_t(c)) * scale;
      for (uint32_t random : {0u, 1u, 30000u, 65534u, 65535u}) {
        EXPECT_EQ(log_code(kLogMap, v * (1 / scale), random), c);
      }
    }
  }
}

// The share of random bits that round up is the value's place between its neighbours.
TEST(Moments, LogCodesAreUnbiased) {
  for (double r : {0.999, 0.97, 0.7123, 0.51, 0.25001, 1e-3, 3.3e-7, 2.1e-9}) {
    double sum = 0;
    for (uint32_t random = 0; random < 65536; ++random) {
      const uint8_t c = log_code(kLogMap, float(r), random);
      const double v = double(log_value(kLogMap, c));
      EXPECT_LT(std::abs(std::log2(v / r)), 0.1251);
      sum += v;
    }
    // Half of 2^-16 of a step of 9 %, and float roundings.
    EXPECT_NEAR(sum / 65536 / r, 1, 1e-6) << r;
  }
}

TEST(Moments, SmallSecondMomentsBecomeTheSmallestCodeNeverZero) {
  for (float r : {2.5e-10f, 1e-12f, 1e-30f, 1e-42f, 0.0f}) {
    EXPECT_EQ(log_code(kLogMap, r, 0), 255);
    EXPECT_EQ(log_code(kLogMap, r, 65535), 255);
  }
  EXPECT_EQ(log_code(kLogMap, NAN, 7), 0);  // a NaN scale tells
}

struct Stored {
  std::vector<uint8_t> memory;
  MomentView view;
  Stored(MomentFormat f, int64_t n) : memory(moment_bytes(f, n)), view(f, memory.data(), n) {}
};

template <Moment kMoment>
std::vector<float> stored_and_read(MomentFormat f, const std::vector<float>& x, uint32_t word) {
  const int64_t n = int64_t(x.size());
  Stored s(f, n);
  std::vector<float> out(x.size());
  const std::vector<uint32_t> words(size_t(kMomentBlock), word);
  for (int64_t b = 0; b * kMomentBlock < n; ++b) {
    const int64_t at = b * kMomentBlock, count = std::min(kMomentBlock, n - at);
    encode_moment<kMoment>(f, s.view, b, count, x.data() + at, words.data());
    decode_moment<kMoment>(f, s.view, b, count, out.data() + at);
  }
  return out;
}

TEST(Moments, ZeroedMemoryHoldsZeros) {
  for (MomentFormat f : kFormats) {
    Stored s(f, 600);
    float x[kMomentBlock];
    decode_moment<Moment::first>(f, s.view, 1, kMomentBlock, x);
    for (float v : x) EXPECT_EQ(v, 0);
    decode_moment<Moment::second>(f, s.view, 2, 88, x);
    for (int i = 0; i < 88; ++i) EXPECT_EQ(x[i], 0);
  }
}

TEST(Moments, ZerosStayZeroWhereTheWholeBlockIs) {
  for (MomentFormat f : kFormats) {
    const std::vector<float> zeros(300);
    EXPECT_EQ(stored_and_read<Moment::first>(f, zeros, 0xffffffffu), zeros);
    EXPECT_EQ(stored_and_read<Moment::second>(f, zeros, 0xffffffffu), zeros);
  }
}

// Twelve decades of v in one block, down to the smallest float: none is stored as zero, except by
// the linear code, which stores most of them so.
TEST(Moments, NoSecondMomentAboveZeroIsStoredAsZero) {
  for (MomentFormat f : kFormats) {
    for (float top : {1.0f, 1e-10f, 1e-20f, 1e-30f, 1e-38f, 1e-42f}) {
      std::vector<float> v(512);
      for (size_t i = 0; i < v.size(); ++i) {
        v[i] = std::max(top * float(std::pow(10.0, -12.0 * double(i) / 511)), 1.5e-45f);
      }
      for (uint32_t word : {0u, 0xffffffffu, 0x80008000u}) {
        const std::vector<float> back = stored_and_read<Moment::second>(f, v, word);
        const auto zeros = std::count(back.begin(), back.end(), 0.0f);
        if (f != MomentFormat::int8_linear) {
          EXPECT_EQ(zeros, 0) << moment_format_name(f) << " " << top;
        } else if (top == 1.0f) {
          EXPECT_GT(zeros, 300);
        }
      }
    }
  }
}

// A Gaussian first moment and its square: relative RMS error of each format. Bounds are what the
// codes' steps allow: 2^-8 bf16; 7 % of the dynamic map's upper decades; steps of a sixth (E2M1)
// or half a code of a linear scale.
TEST(Moments, ErrorsAreThoseOfTheCodes) {
  std::vector<float> m(4096), v(4096);
  for (size_t i = 0; i < m.size(); ++i) {
    m[i] = float(1e-4 * normal_pair(philox(1, 0, i))[0]);
    v[i] = float(1e-9 * std::exp(normal_pair(philox(2, 0, i))[0]));
  }
  const auto relative_rms = [](const std::vector<float>& a, const std::vector<float>& b) {
    double e = 0, s = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      e += std::pow(double(a[i]) - double(b[i]), 2);
      s += std::pow(double(b[i]), 2);
    }
    return std::sqrt(e / s);
  };
  const struct {
    MomentFormat format;
    double first, second;
  } bounds[] = {{MomentFormat::f32, 0, 0},
                {MomentFormat::bf16, 0.004, 0.004},
                {MomentFormat::int8, 0.02, 0.045},
                {MomentFormat::int8_linear, 0.02, 0.02},
                {MomentFormat::nvfp4, 0.11, 0.25}};
  for (const auto& b : bounds) {
    // 0x80008000: the nearest of the two neighbours.
    const auto mf = stored_and_read<Moment::first>(b.format, m, 0x80008000u);
    const auto vf = stored_and_read<Moment::second>(b.format, v, 0x80008000u);
    EXPECT_LE(relative_rms(mf, m), b.first) << moment_format_name(b.format);
    EXPECT_LE(relative_rms(vf, v), b.second) << moment_format_name(b.format);
    if (b.format != MomentFormat::f32) {
      EXPECT_GT(relative_rms(mf, m), b.first / 10);
    }
  }
}

TEST(Moments, Nvfp4RootsAreUnbiasedAndNeverZero) {
  for (float y : {1e-6f, 0.1f, 0.4f, 0.5f, 0.9f, 1.3f, 2.2f, 3.7f, 5.9f}) {
    double sum = 0;
    for (uint32_t random = 0; random < 65536; ++random) {
      const uint8_t c = e2m1_stochastic(y, random);
      EXPECT_NE(c, 0);
      sum += double(e2m1_value(c));
    }
    // Below 0.5 the rule trades the mean for never being zero.
    EXPECT_NEAR(sum / 65536, std::max(0.5, double(y)), 2e-5 * double(y)) << y;
  }
  EXPECT_EQ(e2m1_stochastic(0, 0), 0);
  EXPECT_EQ(e2m1_stochastic(6, 0), 7);
  EXPECT_EQ(e2m1_stochastic(100, 0), 7);
}

TEST(Moments, Bf16SecondMomentIsUnbiasedAndNeverZero) {
  const float v = 1.2345e-9f;
  double sum = 0;
  for (uint32_t random = 0; random < 65536; ++random) {
    sum += double(to_float(stochastic_bf16_v(v, random)));
  }
  EXPECT_NEAR(sum / 65536 / double(v), 1, 1e-7);
  for (uint32_t random : {0u, 65535u}) {
    EXPECT_GT(to_float(stochastic_bf16_v(1.5e-45f, random)), 0);
  }
  EXPECT_EQ(to_float(stochastic_bf16_v(0, 65535)), 0);
}

TEST(Moments, NanIsNotHidden) {
  for (MomentFormat f : kFormats) {
    std::vector<float> x(256, 1.0f);
    x[17] = NAN;
    EXPECT_TRUE(std::isnan(stored_and_read<Moment::first>(f, x, 5)[17])) << moment_format_name(f);
    EXPECT_TRUE(std::isnan(stored_and_read<Moment::second>(f, x, 5)[17])) << moment_format_name(f);
  }
}

TEST(Moments, PaddingKeepsItsBytes) {
  for (MomentFormat f : {MomentFormat::int8, MomentFormat::int8_linear, MomentFormat::nvfp4}) {
    Stored s(f, 250);
    std::fill(s.memory.begin(), s.memory.end(), uint8_t(0xab));
    const std::vector<float> x(250, 2.0f);
    const std::vector<uint32_t> words(250);
    encode_moment<Moment::second>(f, s.view, 0, 250, x.data(), words.data());
    const size_t codes = f == MomentFormat::nvfp4 ? 128 : 256, used = codes * 250 / 256;
    for (size_t i = used; i < codes; ++i) EXPECT_EQ(s.memory[i], 0xab);
    EXPECT_NE(s.memory[used - 1], 0xab);
  }
}

// Checkpoints hold them.
TEST(Moments, NamesStay) {
  EXPECT_EQ(moment_format_name(MomentFormat::f32), "fp32");
  EXPECT_EQ(moment_format_name(MomentFormat::bf16), "bf16");
  EXPECT_EQ(moment_format_name(MomentFormat::int8), "int8");
  EXPECT_EQ(moment_format_name(MomentFormat::int8_linear), "int8-linear");
  EXPECT_EQ(moment_format_name(MomentFormat::nvfp4), "nvfp4");
}

}  // namespace
}  // namespace nibble::test
