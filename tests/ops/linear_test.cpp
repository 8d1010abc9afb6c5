// SPDX-License-Identifier: MIT
// The linear layer against the reference: dense and packed weights, all activation modes.
#include "ops/linear_support.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, out, in;
};
constexpr Shape kDense[] = {{1, 1, 1},    {1, 5, 7},    {2, 4, 16},    {3, 6, 33},
                            {5, 9, 100},  {7, 33, 256}, {1, 16, 2560}, {17, 12, 640},
                            {1, 35, 576}, {1, 9, 896},  {1, 17, 1544}};
constexpr Shape kPacked[] = {{1, 1, 16},   {1, 16, 64},  {2, 17, 16},   {3, 33, 48},  {5, 40, 112},
                             {8, 16, 256}, {9, 31, 320}, {33, 50, 128}, {1, 32, 2560}};

// With the scale, or the last addition.
double depth(int64_t k) { return sum_depth(k) + 2; }

TEST(Linear, DenseWeights) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType weight_type : kActTypes) {
      for (const Shape& s : kDense) {
        Operand x(act, {s.n, s.in}, 3), w(weight_type, {s.out, s.in}),
            wa(weight_type, {s.out, s.in});
        x.normal(1), w.normal(2);
        const auto wv = w.ref_values();
        wa.fill([&](int64_t i) { return std::abs(wv[size_t(i)]); });
        Operand xa = magnitudes_of(x);
        for (DType out_type : {act, DType::f32}) {
          Operand out(out_type, {s.n, s.out}, 2), sums(DType::f32, {s.n, s.out});
          b.cpu->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none);
          b.reference().linear(out.ref, x.ref, dense_weight(w.ref), Activations::none);
          b.reference().linear(sums.ref, xa.ref, dense_weight(wa.ref), Activations::none);
          expect_product(out, sums, depth(s.in));
        }
      }
    }
  });
}

TEST(Linear, RowScaleMultipliesTheOutput) {
  Both b;
  on_every_target([&] {
    Operand scale(DType::f32, {19});
    scale.normal(9);
    Operand x(DType::f32, {3, 64}), w(DType::f32, {19, 64}), out(DType::f32, {3, 19});
    Operand plain(DType::f32, {3, 19});
    x.normal(1), w.normal(2);
    CanonicalNvfp4 c(19, 64, 5);
    OwnedWeight packed = pack(*b.cpu, c);
    for (int mode = 0; mode < (testing_cuda() ? 2 : 3); ++mode) {
      LinearWeight lw = mode == 0 ? dense_weight(w.cpu) : packed.w;
      const Activations a = mode == 2 ? Activations::int8 : Activations::none;
      b.cpu->linear(plain.cpu, x.cpu, lw, a);
      lw.row_scale = scale.cpu;
      b.cpu->linear(out.cpu, x.cpu, lw, a);
      for (int64_t n = 0; n < 3; ++n) {
        for (int64_t r = 0; r < 19; ++r) {
          EXPECT_EQ(out.cpu.row<float>(n)[r],
                    plain.cpu.row<float>(n)[r] * scale.cpu.as<float>()[r]);
        }
      }
    }
  });
}

void check_packed(Both& b, DType act, const Shape& s, Activations mode, double depth,
                  CanonicalNvfp4::Signs signs) {
  Operand x(act, {s.n, s.in}, 5);
  x.normal(uint64_t(s.in));
  Operand xa = magnitudes_of(x);
  const CanonicalNvfp4 c(s.out, s.in, uint64_t(s.n + s.out), signs);
  OwnedWeight cpu_w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
  OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
  for (DType out_type : {act, DType::f32}) {
    Operand out(out_type, {s.n, s.out}, 2), sums(DType::f32, {s.n, s.out});
    b.cpu->linear(out.cpu, x.cpu, cpu_w.w, mode);
    b.reference().linear(out.ref, x.ref, ref_w.w, mode);
    b.reference().linear(sums.ref, xa.ref, ref_a.w, mode);
    expect_product(out, sums, depth);
  }
}

TEST(Linear, PackedWeightsTimesFloats) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kPacked) {
      check_packed(b, act, s, Activations::none, depth(s.in), CanonicalNvfp4::Signs::both);
    }
  });
}

TEST(Linear, PackedWeightsTimesInt8) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kPacked) {
      // The integer sums are exact: only scaling (2), pairing (1) and one addition per 32 round.
      check_packed(b, act, s, Activations::int8, 4 + double(s.in) / 32,
                   CanonicalNvfp4::Signs::both);
    }
  });
}

TEST(Linear, FourBitActivations) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kPacked) {
      check_packed(b, act, s, Activations::nvfp4, depth(s.in), CanonicalNvfp4::Signs::both);
    }
    // More tokens than the kernels for few take.
    for (const Shape& s : {Shape{70, 136, 272}, Shape{65, 72, 128}}) {
      check_packed(b, act, s, Activations::nvfp4, depth(s.in), CanonicalNvfp4::Signs::both);
    }
  });
}

TEST(Linear, FourBitActivationsOnDenseWeights) {
  Both b;
  Operand x(DType::bf16, {3, 64}), w(DType::f32, {5, 64}), out(DType::f32, {3, 5});
  x.normal(1), w.normal(2);
  b.cpu->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::nvfp4);
  b.reference().linear(out.ref, x.ref, dense_weight(w.ref), Activations::nvfp4);
  expect_close(
      out, [](int64_t) { return 20 * kRoundoff * 64 * 9; }, "linear");
}

// Shapes where backends switch kernels: few rows and many, columns in one piece and in slices, one
// token, groups of eight, hundreds; rows aligned and not.
constexpr Shape kSwitches[] = {{1, 40, 2176},
                               {1, 4230, 144},
                               {1, 70, 400},
                               {2, 70, 400},
                               {8, 64, 1024},
                               {20, 130, 2176},
                               {33, 200, 640},
                               {64, 100, 1280},
                               {65, 72, 128},
                               {70, 136, 272},
                               {150, 200, 1104},
                               // Widths of real models; 576 is no multiple of 128.
                               {1, 960, 576},
                               {3, 320, 576},
                               {8, 960, 576},
                               {32, 576, 576},
                               {64, 144, 576},
                               {1, 576, 1536},
                               {32, 128, 1536},
                               {1, 1152, 896},
                               {17, 1152, 896},
                               {5, 112, 4864},
                               {40, 96, 8960},
                               {300, 64, 576}};

TEST(Linear, WhereKernelsSwitch) {
  Both b;
  Operand scale(DType::f32, {4230});
  scale.normal(9);
  for (DType act : kActTypes) {
    for (const Shape& s : kSwitches) {
      SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
      Operand x(act, {s.n, s.in}, 8);
      x.normal(uint64_t(s.in));
      Operand xa = magnitudes_of(x);
      const CanonicalNvfp4 c(s.out, s.in, uint64_t(s.n + s.out), CanonicalNvfp4::Signs::both);
      OwnedWeight w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
      OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
      Operand sums(DType::f32, {s.n, s.out});
      b.reference().linear(sums.ref, xa.ref, ref_a.w, Activations::none);
      for (DType out_type : {act, DType::f32}) {
        Operand out(out_type, {s.n, s.out}, 8 + (8 - s.out % 8) % 8);
        b.cpu->linear(out.cpu, x.cpu, w.w, Activations::none);
        b.reference().linear(out.ref, x.ref, ref_w.w, Activations::none);
        expect_product(out, sums, depth(s.in));
      }
      // Row scales multiply the sum before it is rounded.
      Operand plain(DType::f32, {s.n, s.out}, 8), scaled(act, {s.n, s.out}, 8);
      b.cpu->linear(plain.cpu, x.cpu, w.w, Activations::none);
      w.w.row_scale = scale.cpu.slice(0, s.out);
      b.cpu->linear(scaled.cpu, x.cpu, w.w, Activations::none);
      for (int64_t n = 0; n < s.n; ++n) {
        for (int64_t r = 0; r < s.out; ++r) {
          Operand want(act, {1, 1});
          write_element(want.cpu, 0, 0,
                        double(plain.cpu.row<float>(n)[r] * scale.cpu.as<float>()[r]));
          const double w1 = read_element(want.cpu, 0, 0), got = read_element(scaled.cpu, n, r);
          // Libraries may choose another order of summation for another type of the result.
          const double slack = act == DType::f32 || s.n <= 64 ? 0 : 0x1p-7 * std::abs(w1) + 1e-3;
          ASSERT_NEAR(got, w1, slack) << n << ' ' << r;
        }
      }
    }
  }
}

// Many tiles a block, several exchanges of sums, several panels: a weight whose rows repeat gives
// outputs that repeat, bit for bit where the product is one kernel of ours.
TEST(Linear, TallWeightsOnTheGpu) {
  if (!testing_cuda()) GTEST_SKIP() << "the CPU has no tiles that are dealt out to blocks";
  Both b;
  constexpr int64_t kPeriod = 48;
  for (const Shape& s : {Shape{1, 33600, 144}, Shape{8, 33600, 144}, Shape{33, 19200, 2560},
                         Shape{60, 3360, 9728}, Shape{32, 19200, 2560}, Shape{65, 19200, 2560}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in});
    x.normal(uint64_t(s.in));
    Operand xa = magnitudes_of(x);
    const CanonicalNvfp4 period(kPeriod, s.in, 5);
    CanonicalNvfp4 tall = period;
    tall.out = s.out, tall.codes.clear(), tall.scales.clear();
    for (int64_t r = 0; r < s.out; r += kPeriod) {
      tall.codes.insert(tall.codes.end(), period.codes.begin(), period.codes.end());
      tall.scales.insert(tall.scales.end(), period.scales.begin(), period.scales.end());
    }
    OwnedWeight w = pack(*b.cpu, tall), ref_w = pack(b.reference(), period);
    OwnedWeight ref_a = pack(b.reference(), period.magnitudes());
    Operand all(DType::bf16, {s.n, s.out}), gate_up(DType::bf16, {s.n, s.out});
    Operand act(DType::bf16, {s.n, s.out / 2});
    b.cpu->linear(all.cpu, x.cpu, w.w, Activations::none);
    b.cpu->linear_swiglu(act.cpu, gate_up.cpu, x.cpu, w.w, Activations::none);
    EXPECT_EQ(gate_up.bytes(), all.bytes());
    Operand out(DType::bf16, {s.n, kPeriod}), sums(DType::f32, {s.n, kPeriod});
    b.reference().linear(out.ref, x.ref, ref_w.w, Activations::none);
    b.reference().linear(sums.ref, xa.ref, ref_a.w, Activations::none);
    const bool one_kernel = s.n <= 64;
    for (int64_t begin = 0; begin < s.out; begin += kPeriod) {
      for (int64_t n = 0; n < s.n; ++n) {
        for (int64_t r = 0; r < kPeriod; ++r) {
          const double v = read_element(all.cpu, n, begin + r);
          if (begin == 0 || !one_kernel) write_element(out.cpu, n, r, v);
          ASSERT_EQ(v, read_element(out.cpu, n, r)) << n << ' ' << begin + r;
        }
      }
      if (begin == 0 || !one_kernel) expect_product(out, sums, depth(s.in));
    }
  }
}

TEST(Linear, FusedSwigluHasTheBitsOfItsParts) {
  Both b;
  for (DType act : kActTypes) {
    for (const Shape& s :
         {Shape{1, 96, 400}, Shape{1, 8480, 128}, Shape{1, 64, 2176}, Shape{3, 96, 400},
          Shape{32, 224, 1280}, Shape{40, 160, 272}, Shape{70, 128, 256}, Shape{2, 24, 64},
          Shape{1, 3072, 576}, Shape{8, 512, 576}, Shape{32, 3072, 576}, Shape{1, 9728, 896},
          Shape{33, 704, 896}, Shape{4, 320, 1536}}) {
      SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
      const int64_t width = s.out / 2;
      Operand x(act, {s.n, s.in}, 8), scale(DType::f32, {s.out});
      x.normal(1), scale.normal(2);
      OwnedWeight w = pack(*b.cpu, CanonicalNvfp4(s.out, s.in, 3));
      for (const bool scaled : {false, true}) {
        if (scaled) w.w.row_scale = scale.cpu;
        Operand fused(act, {s.n, width}, 3), gate_up(act, {s.n, s.out}, 5);
        b.cpu->linear_swiglu(fused.cpu, gate_up.cpu, x.cpu, w.w, Activations::none);
        Operand out(act, {s.n, width}, 3), both(act, {s.n, s.out}, 5);
        b.cpu->linear(both.cpu, x.cpu, w.w, Activations::none);
        b.cpu->swiglu(out.cpu, both.cpu.columns(0, width), both.cpu.columns(width, width));
        EXPECT_EQ(gate_up.bytes(), both.bytes());
        EXPECT_EQ(fused.bytes(), out.bytes());
        EXPECT_TRUE(fused.intact() && gate_up.intact());
      }
    }
  }
}

TEST(Linear, RowsOfAWeightAreThatPartOfTheProduct) {
  Both b;
  const CanonicalNvfp4 c(200, 272, 4);
  const OwnedWeight w = pack(*b.cpu, c);
  for (DType act : kActTypes) {
    for (int64_t n : {1, 5, 70}) {
      Operand x(act, {n, 272}), all(act, {n, 200}), part(act, {n, 72});
      x.normal(1);
      b.cpu->linear(all.cpu, x.cpu, w.w, Activations::none);
      b.cpu->linear(part.cpu, x.cpu, b.cpu->rows_of(w.w, 128, 72), Activations::none);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t r = 0; r < 72; ++r) {
          // The order of summation may depend on the shape in 16-bit types.
          const double a = read_element(all.cpu, i, 128 + r), p = read_element(part.cpu, i, r);
          EXPECT_NEAR(p, a, act == DType::f32 ? 0 : 0x1p-7 * std::abs(a) + 1e-3) << i << ' ' << r;
        }
      }
    }
  }
}

// The extremes of the integer path: all weights at +-6, all activations at +-127. The 16-bit sums
// of the 8-bit instructions must not saturate.
TEST(Linear, Int8ExtremesAreExact) {
  Both b;
  on_every_target([&] {
    for (int sign = 0; sign < 4; ++sign) {
      CanonicalNvfp4 c(16, 64, 1);
      std::fill(c.codes.begin(), c.codes.end(), uint8_t(sign & 1 ? 0xff : 0x77));
      std::fill(c.scales.begin(), c.scales.end(), uint8_t(0x38));  // 1
      OwnedWeight w = pack(*b.cpu, c);
      Operand x(DType::f32, {2, 64}), out(DType::f32, {2, 16});
      const double v = sign & 2 ? -127 : 127;
      x.fill([=](int64_t) { return v; });
      b.cpu->linear(out.cpu, x.cpu, w.w, Activations::int8);
      for (double got : out.cpu_values()) EXPECT_EQ(got, (sign & 1 ? -6 : 6) * v * 64);
    }
  });
}

// Activation codes and scales are those of quant/int8.h: with one-hot weights of value 1 the
// product is a single code times its scale.
TEST(Linear, Int8ActivationsFollowTheRule) {
  Both b;
  constexpr int64_t kIn = 96;
  CanonicalNvfp4 c(kIn, kIn, 1);
  std::fill(c.codes.begin(), c.codes.end(), uint8_t(0));
  std::fill(c.scales.begin(), c.scales.end(), uint8_t(0x38));
  for (int64_t r = 0; r < kIn; ++r) {
    c.codes[size_t((r * kIn + r) / 2)] = uint8_t(r % 2 ? 0x20 : 0x02);  // 1.0
  }
  OwnedWeight w = pack(*b.cpu, c);
  std::vector<float> x(size_t(kIn) * 40), want(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto r = philox(3, 0, i);
    x[i] = float(normal_pair(r)[0]) * std::ldexp(1.0f, int(i / 32 % 60) - 40);
    if (i % 7 == 0) x[i] = float(int(r[0] % 255) - 127) * 0.5f;  // ties
  }
  std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  std::vector<int8_t> q(size_t{kIn});
  std::vector<float> scales(size_t(int8_blocks(kIn)));
  for (size_t n = 0; n < 40; ++n) {
    quantize_int8(x.data() + n * kIn, kIn, q.data(), scales.data());
    dequantize_int8(q.data(), scales.data(), kIn, want.data() + n * kIn);
  }
  on_every_target([&] {
    std::vector<float> out(x.size());
    b.cpu->linear(make_tensor(out.data(), DType::f32, {40, kIn}),
                  make_tensor(x.data(), DType::f32, {40, kIn}), w.w, Activations::int8);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], want[i]) << i;
  });
}

TEST(Linear, Int8OfInfinitiesAndNans) {
  Both b;
  OwnedWeight w = pack(*b.cpu, CanonicalNvfp4(16, 64, 4));
  on_every_target([&] {
    for (float bad : {float(INFINITY), float(NAN), -float(INFINITY)}) {
      Operand x(DType::f32, {2, 64}), out(DType::f32, {2, 16});
      x.normal(1);
      x.cpu.row<float>(1)[40] = bad;
      b.cpu->linear(out.cpu, x.cpu, w.w, Activations::int8);
      for (int64_t r = 0; r < 16; ++r) {
        EXPECT_TRUE(std::isfinite(out.cpu.row<float>(0)[r]));
        EXPECT_TRUE(std::isnan(out.cpu.row<float>(1)[r]));
      }
    }
  });
}

}  // namespace
}  // namespace nibble::test
