// SPDX-License-Identifier: MIT
// The building blocks of the kernels: storage conversions bit for bit, exp to 2 ulp.
#include <bit>
#include <limits>

#include "backends/cpu/kernels/kernels.h"
#include "ops/op_support.h"

namespace nibble::test {
namespace {

TEST(VectorMath, SixteenBitFloatsWidenExactly) {
  on_every_target([] {
    std::vector<uint16_t> bits(1 << 16);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint16_t(i);
    std::vector<float> out(bits.size());
    const int64_t n = int64_t(bits.size());
    cpu::convert_elements(make_tensor(out.data(), DType::f32, {n}),
                          make_tensor(bits.data(), DType::bf16, {n}));
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t(i) << 16);
    }
    cpu::convert_elements(make_tensor(out.data(), DType::f32, {n}),
                          make_tensor(bits.data(), DType::f16, {n}));
    for (size_t i = 0; i < bits.size(); ++i) {
      const float want = to_float(f16_t{uint16_t(i)});
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(out[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << i;
      }
    }
  });
}

// Every fp16 value, its neighbours' midpoints and both sides of each, every bf16 boundary among
// random bits: rounding to nearest even as core/half.h does it.
TEST(VectorMath, NarrowingRoundsToNearestEven) {
  std::vector<float> x;
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const float a = to_float(f16_t{uint16_t(i)}), b = to_float(f16_t{uint16_t(i + 1)});
    const float middle = std::isinf(b) ? 65520.0f : (a + b) / 2;
    for (float v : {a, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto r = philox(7, 0, i);
    x.push_back(std::bit_cast<float>(r[0]));
    x.push_back(std::bit_cast<float>((r[1] & 0xffff0000u) | 0x8000u));  // bf16 ties
    x.push_back(std::bit_cast<float>((r[2] & 0xffff0000u) | 0x7fffu));
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float v : {inf, -inf, 65504.0f, 65519.99f, 65520.0f, 1e30f, 3.4e38f}) x.push_back(v);
  const int64_t n = int64_t(x.size());
  on_every_target([&] {
    std::vector<uint16_t> out(x.size());
    cpu::convert_elements(make_tensor(out.data(), DType::bf16, {n}),
                          make_tensor(x.data(), DType::f32, {n}));
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(to_float(bf16_t{out[i]})));
      } else {
        ASSERT_EQ(out[i], to_bf16(x[i]).bits) << x[i];
      }
    }
    cpu::convert_elements(make_tensor(out.data(), DType::f16, {n}),
                          make_tensor(x.data(), DType::f32, {n}));
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(to_float(f16_t{out[i]})));
      } else {
        ASSERT_EQ(out[i], to_f16(x[i]).bits) << x[i];
      }
    }
  });
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (int i = -1040000; i <= 890000; i += 7) x.push_back(float(i) * 1e-4f);
  for (float tiny : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-8f, -87.4f, -103.9f, 88.7f})
    x.push_back(tiny);
  on_every_target([&] {
    std::vector<float> out(x.size());
    cpu::exp_floats(x.data(), out.data(), int64_t(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(double(x[i]));
      if (want > double(std::numeric_limits<float>::max())) continue;
      const float nearest = float(want);
      const double ulp =
          std::max(double(std::nextafter(nearest, INFINITY)) - double(nearest), 0x1p-149);
      worst = std::max(worst, std::abs(double(out[i]) - want) / ulp);
    }
    EXPECT_LE(worst, 2.0);
    RecordProperty("worst_ulp_" + cpu::active_target(), std::to_string(worst));
  });
}

TEST(VectorMath, ExpAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {0.0f, -inf, inf, NAN, -105.0f, -1e30f, 89.0f, 1e30f};
  on_every_target([&] {
    float out[8];
    cpu::exp_floats(x, out, 8);
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 0.0f);
    EXPECT_EQ(out[2], inf);
    EXPECT_TRUE(std::isnan(out[3]));
    EXPECT_EQ(out[4], 0.0f);
    EXPECT_EQ(out[5], 0.0f);
    EXPECT_EQ(out[6], inf);
    EXPECT_EQ(out[7], inf);
  });
}

}  // namespace
}  // namespace nibble::test
