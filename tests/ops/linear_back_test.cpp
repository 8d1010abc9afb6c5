// SPDX-License-Identifier: MIT
// Gradients of the linear layer against the reference, and the exact rules around them.
#include "backends/cpu/memory.h"
#include "ops/linear_support.h"
#include "quant/rounding.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, out, in;
};
constexpr Shape kDense[] = {{1, 1, 1},    {1, 5, 7},    {2, 4, 16},  {3, 6, 33},  {17, 65, 40},
                            {15, 33, 70}, {29, 300, 9}, {5, 513, 5}, {64, 31, 64}};
constexpr Shape kPacked[] = {{1, 1, 16},   {1, 16, 64},  {2, 17, 16},    {3, 33, 48},
                             {5, 40, 112}, {15, 16, 80}, {33, 290, 128}, {4, 520, 16}};

// With the scale, or the last addition.
double depth(int64_t k) { return sum_depth(k) + 1; }

// Sets both sides to the same values; keeps nothing of what was there.
void start_with(Operand& o, uint64_t seed) { o.normal(seed, 3.0); }

TEST(LinearDgrad, DenseWeights) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType weight_type : kActTypes) {
      for (const Shape& s : kDense) {
        Operand dy(act, {s.n, s.out}, 3), w(weight_type, {s.out, s.in}), scale(DType::f32, {s.out});
        dy.normal(1), w.normal(2), scale.normal(3);
        Operand dya = magnitudes_of(dy), wa = magnitudes_of(w);
        Operand scale_a(DType::f32, {s.out});
        const auto sv = scale.ref_values();
        scale_a.fill([&](int64_t i) { return std::abs(sv[size_t(i)]); });
        for (DType out_type : {act, DType::f32}) {
          for (const bool scaled : {false, true}) {
            Operand dx(out_type, {s.n, s.in}, 2), sums(DType::f32, {s.n, s.in});
            const Tensor row_scale = scaled ? scale.cpu : Tensor{};
            const Tensor row_scale_a = scaled ? scale_a.cpu : Tensor{};
            b.cpu->linear_dgrad(dx.cpu, dy.cpu, dense_weight(w.cpu, row_scale), Accumulate::no);
            b.reference().linear_dgrad(dx.ref, dy.ref, dense_weight(w.ref, row_scale),
                                       Accumulate::no);
            b.reference().linear_dgrad(sums.ref, dya.ref, dense_weight(wa.ref, row_scale_a),
                                       Accumulate::no);
            expect_product(dx, sums, depth(s.out) + 1, "dgrad");
          }
        }
      }
    }
  });
}

TEST(LinearDgrad, PackedWeights) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kPacked) {
      for (const bool scaled : {false, true}) {
        Operand dy(act, {s.n, s.out}, 3), scale(DType::f32, {s.out});
        dy.normal(1), scale.fill([](int64_t i) { return 0.3 + double(i % 7); });
        Operand dya = magnitudes_of(dy);
        const CanonicalNvfp4 c(s.out, s.in, uint64_t(s.n), CanonicalNvfp4::Signs::both);
        OwnedWeight cpu_w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
        OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
        if (scaled) cpu_w.w.row_scale = ref_w.w.row_scale = ref_a.w.row_scale = scale.cpu;
        for (DType out_type : {act, DType::f32}) {
          Operand dx(out_type, {s.n, s.in}, 2), sums(DType::f32, {s.n, s.in});
          b.cpu->linear_dgrad(dx.cpu, dy.cpu, cpu_w.w, Accumulate::no);
          b.reference().linear_dgrad(dx.ref, dy.ref, ref_w.w, Accumulate::no);
          b.reference().linear_dgrad(sums.ref, dya.ref, ref_a.w, Accumulate::no);
          expect_product(dx, sums, depth(s.out) + 1, "dgrad");
        }
      }
    }
  });
}

// A head: more rows than a GPU dequantises at a time.
TEST(LinearDgrad, PackedWeightsOfManyRows) {
  Both b;
  constexpr int64_t kN = 3, kOut = 33024, kIn = 768;
  Operand dy(DType::bf16, {kN, kOut});
  dy.normal(1);
  Operand dya = magnitudes_of(dy);
  const CanonicalNvfp4 c(kOut, kIn, 1, CanonicalNvfp4::Signs::both);
  OwnedWeight cpu_w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
  OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
  Operand dx(DType::f32, {kN, kIn}, 2), sums(DType::f32, {kN, kIn});
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    b.cpu->linear_dgrad(dx.cpu, dy.cpu, cpu_w.w, accumulate);
    b.reference().linear_dgrad(dx.ref, dy.ref, ref_w.w, accumulate);
    b.reference().linear_dgrad(sums.ref, dya.ref, ref_a.w, accumulate);
    expect_product(dx, sums, depth(kOut) + 1, "dgrad");
  }
}

// A packed weight is the dense one it stands for: the same bits.
TEST(LinearDgrad, PackedIsDenseOfTheSameValues) {
  Both b;
  const CanonicalNvfp4 c(70, 96, 3, CanonicalNvfp4::Signs::both);
  OwnedWeight packed = pack(*b.cpu, c);
  Operand w(DType::f32, {70, 96}), dy(DType::f32, {19, 70}), scale(DType::f32, {70});
  dequantize_rows(c.codes.data(), c.scales.data(), 70, 96, 1.0f, w.cpu.as<float>());
  dy.normal(1), scale.normal(2);
  on_every_target([&] {
    for (const Tensor& s : {Tensor{}, scale.cpu}) {
      Operand x(DType::f32, {19, 96}), y(DType::f32, {19, 96});
      packed.w.row_scale = s;
      b.cpu->linear_dgrad(x.cpu, dy.cpu, packed.w, Accumulate::no);
      b.cpu->linear_dgrad(y.cpu, dy.cpu, dense_weight(w.cpu, s), Accumulate::no);
      EXPECT_EQ(x.bytes(), y.bytes());
    }
  });
}

// Adding rounds once: what was there plus the fp32 product, to nearest.
TEST(LinearDgrad, AccumulatesOntoWhatIsThere) {
  Both b;
  on_every_target_and_type([&](DType act) {
    Operand dy(act, {15, 50}), sum(DType::f32, {15, 37});
    Operand w(DType::bf16, {50, 37});
    dy.normal(1), w.normal(2);
    b.cpu->linear_dgrad(sum.cpu, dy.cpu, dense_weight(w.cpu), Accumulate::no);
    for (DType out_type : {act, DType::f32}) {
      Operand dx(out_type, {15, 37}, 4), want(out_type, {15, 37});
      start_with(dx, 7);
      for (int64_t n = 0; n < 15; ++n) {
        for (int64_t i = 0; i < 37; ++i) {
          const float before = float(read_element(dx.cpu, n, i));
          write_element(want.cpu, n, i, double(before + sum.cpu.row<float>(n)[i]));
        }
      }
      b.cpu->linear_dgrad(dx.cpu, dy.cpu, dense_weight(w.cpu), Accumulate::yes);
      EXPECT_EQ(dx.bytes(), want.bytes());
      EXPECT_TRUE(dx.intact());
    }
  });
}

TEST(LinearDgrad, RowsOfAWeight) {
  Both b;
  constexpr int64_t kOut = 150, kIn = 80;
  const CanonicalNvfp4 c(kOut, kIn, 5, CanonicalNvfp4::Signs::both);
  CanonicalNvfp4 tail(50, kIn, 5);  // rows 64 .. 114
  std::copy_n(c.codes.begin() + 64 * kIn / 2, tail.codes.size(), tail.codes.begin());
  std::copy_n(c.scales.begin() + 64 * kIn / 16, tail.scales.size(), tail.scales.begin());
  Operand scale(DType::f32, {kOut}), dy(DType::f32, {9, kOut}), x(DType::f32, {9, kIn});
  scale.normal(1), dy.normal(2), x.normal(3);
  for (Backend* backend : {b.cpu.get(), &b.reference()}) {
    const bool cpu = backend == b.cpu.get();
    const auto side = [&](const Operand& o) { return cpu ? o.cpu : o.ref; };
    OwnedWeight whole = pack(*backend, c), part = pack(*backend, tail);
    whole.w.row_scale = scale.cpu;
    part.w.row_scale = scale.cpu.slice(64, 50);
    const LinearWeight rows = backend->rows_of(whole.w, 64, 50);
    Operand a(DType::f32, {9, kIn}), z(DType::f32, {9, kIn}), ya(DType::f32, {9, 50}),
        yz(DType::f32, {9, 50});
    backend->linear_dgrad(side(a), side(dy).columns(64, 50), rows, Accumulate::no);
    backend->linear_dgrad(side(z), side(dy).columns(64, 50), part.w, Accumulate::no);
    EXPECT_EQ(cpu ? a.cpu_values() : a.ref_values(), cpu ? z.cpu_values() : z.ref_values());
    backend->linear(side(ya), side(x), rows, Activations::none);
    backend->linear(side(yz), side(x), part.w, Activations::none);
    EXPECT_EQ(cpu ? ya.cpu_values() : ya.ref_values(), cpu ? yz.cpu_values() : yz.ref_values());
  }
}

TEST(LinearWgrad, AgainstTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kDense) {
      // The sum runs over tokens here: out is their number.
      Operand dy(act, {s.out, s.n}, 5), x(act, {s.out, s.in}, 2);
      dy.normal(1), x.normal(2);
      Operand dya = magnitudes_of(dy), xa = magnitudes_of(x);
      Operand sums(DType::f32, {s.n, s.in});
      b.reference().linear_wgrad(sums.ref, dya.ref, xa.ref, {});
      for (DType out_type : {act, DType::f32, DType::bf16}) {
        Operand dw(out_type, {s.n, s.in});
        b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {});
        b.reference().linear_wgrad(dw.ref, dy.ref, x.ref, {});
        expect_product(dw, sums, depth(s.out), "wgrad");
      }
    }
  });
}

TEST(LinearWgrad, NoTokens) {
  Both b;
  on_every_target([&] {
    for (DType type : {DType::f32, DType::bf16}) {
      Operand dw(type, {20, 33}), before(type, {20, 33}), dx(DType::f32, {0, 33});
      Operand dy(DType::f32, {0, 20}), x(DType::f32, {0, 33}), w(DType::f32, {20, 33});
      start_with(dw, 1), start_with(before, 1), w.normal(2);
      b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::yes, 3, 4});
      EXPECT_EQ(dw.bytes(), before.bytes());
      b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {});
      for (double v : dw.cpu_values()) EXPECT_EQ(v, 0);
      b.cpu->linear_dgrad(dx.cpu, dy.cpu, dense_weight(w.cpu), Accumulate::no);
    }
  });
}

// bf16 gradients: overwriting is the nearest of the fp32 result, adding is the one stochastic rule.
TEST(LinearWgrad, Bf16RoundingToTheBit) {
  Both b;
  on_every_target([&] {
    for (int64_t in : {int64_t(64), int64_t(37), int64_t(30), int64_t(3)}) {
      constexpr int64_t kRows = 19, kTokens = 40;
      Operand dy(DType::bf16, {kTokens, kRows}), x(DType::bf16, {kTokens, in});
      dy.normal(1), x.normal(2);
      Operand sum(DType::f32, {kRows, in}), dw(DType::bf16, {kRows, in});
      b.cpu->linear_wgrad(sum.cpu, dy.cpu, x.cpu, {});
      b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::no, 8, 9});
      for (int64_t i = 0; i < kRows * in; ++i) {
        ASSERT_EQ(dw.cpu.as<bf16_t>()[i].bits, to_bf16(sum.cpu.as<float>()[i]).bits) << i;
      }
      Operand before(DType::bf16, {kRows, in});
      start_with(before, 5), start_with(dw, 5);
      const uint64_t seed = 0x123456789abcdef0u, stream = 0xfedcba9876543210u;
      b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::yes, seed, stream});
      int64_t away = 0;
      for (int64_t i = 0; i < kRows * in; ++i) {
        const float v = to_float(before.cpu.as<bf16_t>()[i]) + sum.cpu.as<float>()[i];
        const bf16_t want = stochastic_bf16(v, random_bits(seed, stream, uint64_t(i)));
        ASSERT_EQ(dw.cpu.as<bf16_t>()[i].bits, want.bits) << i;
        away += want.bits != to_bf16(v).bits;
      }
      EXPECT_GT(away, kRows * in / 8);  // a quarter is expected not to be the nearest
    }
  });
}

// A gradient written in pieces of its rows takes the random bits it would take as a whole.
TEST(LinearWgrad, PiecesRoundAsTheWhole) {
  Both b;
  on_every_target([&] {
    constexpr int64_t kRows = 19, kTokens = 40, kIn = 37;
    Operand dy(DType::bf16, {kTokens, kRows}), x(DType::bf16, {kTokens, kIn});
    dy.normal(1), x.normal(2);
    Operand whole(DType::bf16, {kRows, kIn}), pieces(DType::bf16, {kRows, kIn});
    start_with(whole, 5), start_with(pieces, 5);
    b.cpu->linear_wgrad(whole.cpu, dy.cpu, x.cpu, {Accumulate::yes, 3, 4});
    for (int64_t row = 0; row < kRows; row += 7) {
      const int64_t rows = std::min<int64_t>(7, kRows - row);
      b.cpu->linear_wgrad(pieces.cpu.slice(row, rows), dy.cpu.columns(row, rows), x.cpu,
                          {Accumulate::yes, 3, 4, row * kIn});
    }
    EXPECT_EQ(whole.bytes(), pieces.bytes());
  });
}

// What nearest rounding would lose entirely arrives on average.
TEST(LinearWgrad, AccumulationIsUnbiased) {
  Both b;
  constexpr int64_t kSeeds = 2000, kElements = 48;
  Operand dy(DType::f32, {1, 1}), x(DType::f32, {1, kElements});
  dy.fill([](int64_t) { return 1.0; });
  // bf16 steps at 1 are 2^-7: contributions from 1/24 of a step to two steps.
  x.fill([](int64_t i) { return std::ldexp(double(i + 1) / 24, -7); });
  std::vector<double> sums(kElements);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Operand dw(DType::bf16, {1, kElements});
    dw.fill([](int64_t) { return 1.0; });
    b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::yes, seed, 7});
    const auto v = dw.cpu_values();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += v[i] - 1;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    // A Bernoulli step has a standard deviation of at most half of it; five of those of the mean.
    const double tolerance = 5 * 0.5 * 0x1p-7 / std::sqrt(double(kSeeds));
    EXPECT_NEAR(sums[i] / kSeeds, x.cpu_values()[i], tolerance) << i;
  }
}

// Enough of K that panels come in several blocks, and of rows that every thread has some.
TEST(LinearBack, AnyThreadCountGivesTheSameBits) {
  constexpr int64_t kTokens = 70, kOut = 4200, kIn = 560;
  Operand dy(DType::bf16, {kTokens, kOut}), x(DType::bf16, {kTokens, kIn});
  dy.normal(1), x.normal(2);
  const CanonicalNvfp4 c(kOut, kIn, 6);
  std::vector<std::vector<uint8_t>> dxs, dws;
  for (int threads : {1, 2, 3, 7}) {
    const auto backend = make_tested_backend(threads);
    OwnedWeight w = pack(*backend, c);
    Operand dx(DType::f32, {kTokens, kIn}), dw(DType::bf16, {kOut, kIn});
    backend->linear_dgrad(dx.cpu, dy.cpu, w.w, Accumulate::no);
    backend->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {});
    backend->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::yes, 1, 2});
    dxs.push_back(dx.bytes()), dws.push_back(dw.bytes());
    // A row's gradient is its own, too.
    Operand one(DType::f32, {1, kIn});
    backend->linear_dgrad(one.cpu, dy.cpu.slice(41, 1), w.w, Accumulate::no);
    for (int64_t i = 0; i < kIn; ++i) {
      ASSERT_EQ(one.cpu.as<float>()[i], dx.cpu.row<float>(41)[i]) << i;
    }
  }
  for (size_t i = 1; i < dxs.size(); ++i) {
    EXPECT_EQ(dxs[0], dxs[i]);
    EXPECT_EQ(dws[0], dws[i]);
  }
}

TEST(LinearBack, SteadyStateAllocatesNothing) {
  Both b;
  Operand dy(DType::bf16, {40, 300}), x(DType::bf16, {40, 64}), w(DType::f32, {300, 64});
  dy.normal(1), x.normal(2), w.normal(3);
  OwnedWeight packed = pack(*b.cpu, CanonicalNvfp4(300, 64, 4));
  Operand dx(DType::bf16, {40, 64}), dw(DType::bf16, {300, 64});
  const auto step = [&] {
    b.cpu->quantize_rows(packed.w, 0, w.cpu, ScaleRule::four_over_six);
    b.cpu->linear_dgrad(dx.cpu, dy.cpu, packed.w, Accumulate::no);
    b.cpu->linear_dgrad(dx.cpu, dy.cpu, dense_weight(w.cpu), Accumulate::yes);
    b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {Accumulate::yes, 1, 2});
  };
  step();
  const uint64_t before = cpu::allocation_count();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(cpu::allocation_count(), before);
}

TEST(QuantizeRows, IsQuantiseThenPack) {
  Both b;
  for (DType type : kActTypes) {
    for (ScaleRule rule : {ScaleRule::four_over_six, ScaleRule::absmax, ScaleRule::search}) {
      for (const bool scaled : {false, true}) {
        constexpr int64_t kOut = 70, kIn = 80, kBegin = 5, kRows = 41;
        Operand src(type, {kRows, kIn}), scale(DType::f32, {kOut});
        src.normal(1, 0.02), scale.fill([](int64_t i) { return 0.001 + 0.01 * double(i); });
        std::vector<float> values(size_t(kRows * kIn));
        const auto v = src.cpu_values();
        for (size_t i = 0; i < v.size(); ++i) values[i] = float(v[i]);
        std::vector<uint8_t> codes(values.size() / 2), scales(values.size() / 16);
        for (int64_t r = 0; r < kRows; ++r) {
          const float g = scaled ? scale.cpu.as<float>()[kBegin + r] : 1.0f;
          quantize_rows(values.data() + r * kIn, 1, kIn, rule, g, codes.data() + r * kIn / 2,
                        scales.data() + r * kIn / 16);
        }
        for (Backend* backend : {b.cpu.get(), &b.reference()}) {
          const CanonicalNvfp4 old(kOut, kIn, 9);  // rows that are not written keep their bytes
          OwnedWeight want = pack(*backend, old), got = pack(*backend, old);
          if (scaled) got.w.row_scale = scale.cpu;
          backend->pack_rows(want.w, kBegin, kRows, codes, scales);
          backend->quantize_rows(got.w, kBegin, backend == b.cpu.get() ? src.cpu : src.ref, rule);
          EXPECT_EQ(0, std::memcmp(got.memory.data(), want.memory.data(), want.memory.bytes()));
        }
      }
    }
  }
}

TEST(QuantizeRows, ThreadsAndNans) {
  Operand src(DType::f32, {200, 64});
  src.normal(1);
  std::vector<std::vector<uint8_t>> packed;
  for (int threads : {1, 3}) {
    const auto backend = make_tested_backend(threads);
    OwnedWeight w = pack(*backend, CanonicalNvfp4(200, 64, 2));
    backend->quantize_rows(w.w, 0, src.cpu, ScaleRule::four_over_six);
    const auto* p = reinterpret_cast<const uint8_t*>(w.memory.data());
    packed.emplace_back(p, p + w.memory.bytes());
    src.cpu.row<float>(150)[33] = NAN;
    EXPECT_THROW(backend->quantize_rows(w.w, 0, src.cpu, ScaleRule::four_over_six), FormatError);
    src.normal(1);
  }
  EXPECT_EQ(packed[0], packed[1]);
}

}  // namespace
}  // namespace nibble::test
