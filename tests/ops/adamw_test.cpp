// SPDX-License-Identifier: MIT
// adamw_step and sum_squares: bit for bit the scalar rules (which the reference backend runs),
// whatever the division into ranges, the number of threads and the instruction set.
#include "ops/adamw_support.h"

#include <cmath>
#include <cstring>

namespace nibble::test {
namespace {

// Nine decades of gradients in every block, zeros and extremes among them.
double wild_gradient(int t, int64_t i) {
  const auto r = philox(5, uint64_t(t), uint64_t(i));
  if (r[0] % 37 == 0) return 0;
  if (r[0] % 1009 == 1) return 1e-38;
  if (r[0] % 1009 == 2) return 1e15;
  return std::pow(10.0, -9.0 * uniform_double(r[1], r[2])) * (r[3] % 2 ? 1 : -1);
}

std::string describe(const ParameterCase& c) {
  return std::string(moment_format_name(c.format)) + ", master " +
         std::string(dtype_name(c.master)) + ", grad " + std::string(dtype_name(c.grad)) + ", " +
         std::to_string(c.rows) + " x " + std::to_string(c.cols);
}

constexpr int kSteps = 3;

// Three steps, in ranges of `chunk` elements (0: whole); the last from a state of any bytes.
enum class Ranges { views, apart };  // of whole tensors, or of tensors that hold nothing else
std::vector<uint8_t> run(Backend& backend, const ParameterCase& c, int64_t chunk, UpdateFrom from,
                         MasterRounding rounding, Ranges ranges = Ranges::views) {
  Parameter p(backend, c);
  p.set_master([](int64_t i) { return 0.05 * normal_at(1, 0, i); });
  if (c.packed) p.quantize_master();
  std::vector<uint8_t> all;
  for (int t = 1; t <= kSteps; ++t) {
    p.set_grad([&](int64_t i) { return wild_gradient(t, i); });
    if (t == 3) p.scramble_codes(6);
    AdamwStep s = adamw_at(t, 1e-3f);
    s.weight_decay = t == 2 ? 0.1f : 0.0f;
    s.grad_scale = t == 3 ? 0.37f : 1.0f;
    s.from = from;
    s.rounding = rounding;
    if (chunk == 0) {
      p.step(s);
    } else {
      // Not in order: ranges must not lean on one another.
      for (int64_t b = (p.n() - 1) / chunk * chunk; b >= 0; b -= chunk) {
        const int64_t count = std::min(chunk, p.n() - b);
        ranges == Ranges::views ? p.step(s, b, count) : p.step_apart(s, b, count);
      }
    }
    const auto state = p.state();
    all.insert(all.end(), state.begin(), state.end());
  }
  return all;
}

struct Division {
  int threads;
  int64_t chunk;
  Ranges ranges = Ranges::views;
};
// Apart: as ranks share parameters out. On GPUs that is not there.
constexpr Division kDivisions[] = {
    {1, 0}, {3, 0}, {2, 256}, {2, 1024}, {2, 256, Ranges::apart}, {1, 1024, Ranges::apart}};

void expect_scalar_rules(const ParameterCase& c, UpdateFrom from = UpdateFrom::master,
                         MasterRounding rounding = MasterRounding::stochastic) {
  SCOPED_TRACE(describe(c));
  RefBackend<double> reference;
  // The GPU's kernel of this case has its own roundings (adamw_close_test.cpp): here only that the
  // division does not matter.
  const bool own = testing_cuda() && c.format == MomentFormat::int8 && c.master == DType::bf16 &&
                   c.grad == DType::bf16 && from == UpdateFrom::master &&
                   rounding == MasterRounding::stochastic;
  const auto device = make_tested_backend(1);
  const auto want = run(own ? *device : static_cast<Backend&>(reference), c, 0, from, rounding);
  on_every_target([&] {
    for (const Division& d : kDivisions) {
      if (d.ranges == Ranges::apart && testing_cuda()) continue;
      const auto backend = make_tested_backend(d.threads);
      const auto got = run(*backend, c, d.chunk, from, rounding, d.ranges);
      ASSERT_EQ(got.size(), want.size());
      const size_t bad =
          size_t(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
      ASSERT_EQ(bad, want.size()) << "byte " << bad << " of a step's "
                                  << want.size() / size_t(kSteps) << ", ranges of " << d.chunk;
    }
  });
}

TEST(Adamw, EqualsTheScalarRules) {
  for (MomentFormat format : kMomentFormats) {
    for (DType master : {DType::f32, DType::bf16}) {
      for (DType grad : {DType::f32, DType::bf16}) {
        for (int64_t n : {1, 255, 256, 257, 4096, 2500}) {
          expect_scalar_rules({format, master, grad, 1, n});
        }
      }
    }
  }
}

TEST(Adamw, EqualsTheScalarRulesAcrossManyThreadsWork) {
  for (MomentFormat format : {MomentFormat::int8, MomentFormat::bf16}) {
    expect_scalar_rules({format, DType::bf16, DType::bf16, 1, 50'000});
  }
}

TEST(Adamw, RequantisesByTheScalarRules) {
  for (ScaleRule rule :
       {ScaleRule::four_over_six, ScaleRule::absmax, ScaleRule::search, ScaleRule::torchao}) {
    for (DType master : {DType::f32, DType::bf16}) {
      for (const bool row_scales : {false, true}) {
        if (row_scales && rule == ScaleRule::torchao) continue;
        for (const auto& [rows, cols] :
             {std::pair<int64_t, int64_t>{5, 16}, {33, 48}, {7, 272}, {18, 512}}) {
          const bool vectors = rule == ScaleRule::four_over_six;  // others: one path for all
          if (!vectors && rows != 33) continue;
          expect_scalar_rules({MomentFormat::int8, master, DType::bf16, rows, cols,
                               PackedCase{rule, row_scales, 3, 2}});
        }
      }
    }
  }
}

TEST(Adamw, UpdatesFromTheQuantisedCopyByTheScalarRules) {
  for (const bool row_scales : {false, true}) {
    expect_scalar_rules({MomentFormat::int8, DType::bf16, DType::f32, 9, 80,
                         PackedCase{ScaleRule::absmax, row_scales, 1, 0}},
                        UpdateFrom::quantised);
  }
}

TEST(Adamw, RoundsToNearestByTheScalarRules) {
  for (MomentFormat format : kMomentFormats) {
    for (DType grad : {DType::f32, DType::bf16}) {
      for (int64_t n : {255, 2500}) {
        expect_scalar_rules({format, DType::bf16, grad, 1, n}, UpdateFrom::master,
                            MasterRounding::nearest);
      }
    }
  }
  for (const UpdateFrom from : {UpdateFrom::master, UpdateFrom::quantised}) {
    expect_scalar_rules({MomentFormat::int8_linear, DType::bf16, DType::bf16, 33, 48,
                         PackedCase{ScaleRule::four_over_six, false, 3, 2}},
                        from, MasterRounding::nearest);
  }
}

// The one step is w - lr, so the rule can be written without the library's rounding: halfway
// between two values of bf16 the even one, else the nearer one, NaN as NaN.
TEST(Adamw, NearestIsTheNearestValueOfBf16) {
  constexpr int64_t kN = 4096;
  on_every_target([] {
    const auto backend = make_tested_backend(2);
    Parameter p(*backend, {MomentFormat::f32, DType::bf16, DType::f32, 1, kN});
    const auto size = [](int64_t i) { return std::exp2(double(i % 20) - 12); };
    p.set_master([&](int64_t i) { return size(i) * (1 + double(i / 20 % 128) / 128); });
    const auto before = p.master_values();
    p.set_grad([](int64_t i) { return i == 77 ? NAN : i % 2 ? 1.0 : -1.0; });
    AdamwStep s = adamw_at(1, 0x1p-12f);  // an eighth of a step up to whole octaves
    s.beta1 = s.beta2 = 0, s.bias1 = s.bias2 = 1, s.eps = 0x1p-100f;
    s.rounding = MasterRounding::nearest;
    p.step(s);
    const auto after = p.master_values();
    for (int64_t i = 0; i < kN; ++i) {
      if (i == 77) {
        EXPECT_TRUE(std::isnan(after[size_t(i)]));
        continue;
      }
      const double exact = before[size_t(i)] - 0x1p-12 * (i % 2 ? 1 : -1);
      const double ulp = std::exp2(std::floor(std::log2(std::abs(exact))) - 7);
      const double want = exact == 0 ? 0 : std::nearbyint(exact / ulp) * ulp;  // ties to even
      ASSERT_EQ(after[size_t(i)], want) << "element " << i << " at " << before[size_t(i)];
    }
  });
}

// Blocks of every magnitude a weight can have, subnormals and saturation of the scale included,
// and ties of E2M1: the vector quantiser against quantize_block.
TEST(Adamw, RequantisesExtremeBlocks) {
  const ParameterCase base{MomentFormat::f32, DType::f32, DType::f32, 64, 512};
  for (DType master : {DType::f32, DType::bf16}) {
    for (const bool row_scales : {false, true}) {
      ParameterCase c = base;
      c.master = master;
      c.packed = PackedCase{ScaleRule::four_over_six, row_scales, 0, 0};
      std::vector<uint8_t> want;
      const auto run_on = [&](Backend& backend) {
        Parameter p(backend, c);
        p.set_master([&](int64_t i) {
          const auto r = philox(8, 0, uint64_t(i));
          const auto block = philox(9, 0, uint64_t(i / 16));
          const double size = std::exp2(double(block[0] % 60) - 40);
          if (block[1] % 3 == 0) {  // multiples of a quarter of a scale: ties
            return double(int(r[0] % 49) - 24) * 0.25 * size * double(8 + block[2] % 8) / 8;
          }
          return size * normal_at(10, 0, i);
        });
        p.set_grad([](int64_t) { return 0.0; });
        // No gradient and decay 1: the master becomes exactly half of what it was.
        AdamwStep s = adamw_at(1, 0.5f);
        s.weight_decay = 1;
        p.step(s);
        return p.state();
      };
      RefBackend<double> reference;
      want = run_on(reference);
      on_every_target([&] { EXPECT_EQ(run_on(*make_tested_backend(2)), want); });
    }
  }
}

TEST(Adamw, BlocksWhoseMasterDidNotChangeKeepTheirCodes) {
  for (const bool reference : {true, false}) {
    RefBackend<double> ref;
    const auto cpu = make_tested_backend(2);
    Backend& backend = reference ? static_cast<Backend&>(ref) : *cpu;
    const int64_t rows = 24, cols = 512;
    Parameter p(backend, {MomentFormat::int8, DType::bf16, DType::bf16, rows, cols, PackedCase{}});
    p.set_master([](int64_t i) { return 0.02 * normal_at(1, 0, i); });
    // Codes that the master would not give, to see which are made anew.
    const auto before = p.packed_bytes();
    const auto touched = [](int64_t block) { return block % 3 == 1; };
    p.set_grad([&](int64_t i) { return touched(i / 16) && i % 16 == 5 ? 1.0 : 0.0; });
    AdamwStep s = adamw_at(1, 0.01f);
    p.step(s);
    const auto after = p.packed_bytes();
    std::vector<float> w;
    for (double x : p.master_values()) w.push_back(float(x));
    for (int64_t b = 0; b < rows * cols / 16; ++b) {
      uint8_t codes[8], scale;
      quantize_block(w.data() + 16 * b, ScaleRule::four_over_six, 1, codes, &scale);
      if (!touched(b)) {
        std::memcpy(codes, before.data() + 8 * b, 8);
        scale = before[size_t(rows * cols / 2 + b)];
      }
      EXPECT_EQ(std::memcmp(after.data() + 8 * b, codes, 8), 0) << b;
      EXPECT_EQ(after[size_t(rows * cols / 2 + b)], scale) << b;
    }
    s.lr = 0;
    const auto still = p.packed_bytes();
    p.step(s);
    EXPECT_EQ(p.packed_bytes(), still);
  }
}

TEST(Adamw, AMasterThatBecameNanIsRefusedWhereCodesCannotHoldIt) {
  on_every_target([] {
    for (DType master : {DType::bf16, DType::f32}) {
      const auto backend = make_tested_backend(2);
      Parameter p(*backend, {MomentFormat::int8, master, DType::bf16, 2, 256, PackedCase{}});
      p.set_grad([](int64_t i) { return i == 300 ? NAN : 1.0; });
      try {
        p.step(adamw_at(1, 1e-3f));
        ADD_FAILURE();
      } catch (const UsageError& e) {
        EXPECT_NE(std::string(e.what()).find("row 1 "), std::string::npos) << e.what();
      }
      EXPECT_TRUE(std::isnan(p.master_values()[300]));
      EXPECT_TRUE(std::isnan(p.moment_values<Moment::first>()[300]));
      EXPECT_TRUE(std::isnan(p.moment_values<Moment::second>()[300]));
    }
  });
}

// Where the step is nothing, not even the sign of a zero changes.
TEST(Adamw, AStepOfNothingChangesNoBit) {
  on_every_target([] {
    const auto backend = make_tested_backend(1);
    for (DType master : {DType::bf16, DType::f32}) {
      Parameter p(*backend, {MomentFormat::int8, master, DType::bf16, 1, 300});
      p.set_master([](int64_t i) { return i % 3 ? -0.0 : 0.1 * double(i); });
      p.set_grad([](int64_t i) { return i % 2 ? 1.0 : -1.0; });
      const size_t bytes = 300 * dtype_bytes(master);
      const auto before = p.state();
      p.step(adamw_at(1, 0.0f));
      EXPECT_EQ(std::memcmp(p.state().data(), before.data(), bytes), 0);
    }
  });
}

// Five steps against the formula in double: the reference keeps its moments in f32, which costs it
// little; fp32 arithmetic keeps within the bounds given to goldens.
TEST(Adamw, FiveStepsAgainstTheFormulaInDouble) {
  constexpr int64_t kN = 2000;
  std::vector<double> w, m(kN), v(kN);
  for (int64_t i = 0; i < kN; ++i) w.push_back(double(float(0.02 * normal_at(1, 0, i))));
  RefBackend<double> reference;
  const auto cpu = make_tested_backend(2);
  Parameter pr(reference, {MomentFormat::f32, DType::f64, DType::f64, 1, kN});
  Parameter pc(*cpu, {MomentFormat::f32, DType::f32, DType::f32, 1, kN});
  pr.set_master([&](int64_t i) { return w[size_t(i)]; });
  pc.set_master([&](int64_t i) { return w[size_t(i)]; });
  const auto gradient = [](int t, int64_t i) {
    return double(float(1e-3 * normal_at(2, uint64_t(t), i)));
  };
  for (int t = 1; t <= 5; ++t) {
    AdamwStep s = adamw_at(t, 1e-3f);
    s.weight_decay = 0.01f;
    s.grad_scale = 0.75f;
    pr.set_grad([&](int64_t i) { return gradient(t, i); });
    pc.set_grad([&](int64_t i) { return gradient(t, i); });
    pr.step(s);
    pc.step(s);
    for (size_t i = 0; i < kN; ++i) {
      const double g = 0.75 * gradient(t, int64_t(i));
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mh = m[i] / (1 - std::pow(0.9, t)), vh = v[i] / (1 - std::pow(0.999, t));
      w[i] -= 1e-3 * (mh / (std::sqrt(vh) + 1e-8) + 0.01 * w[i]);
    }
  }
  const auto relative = [&](const std::vector<double>& got) {
    double e = 0, n = 0;
    for (size_t i = 0; i < kN; ++i) e += std::pow(got[i] - w[i], 2), n += w[i] * w[i];
    return std::sqrt(e / n);
  };
  EXPECT_LT(relative(pr.master_values()), 2e-6);
  EXPECT_LT(relative(pc.master_values()), 5e-6);
}

TEST(SumSquares, OneOrderForEveryTargetAndThreadCount) {
  for (DType type : kActTypes) {
    for (int64_t n : {0, 1, 15, 17, 300, 65536, 200'001}) {
      Operand x(type, {n});
      x.normal(3);
      RefBackend<double> reference;
      double want = 0, first = 0;
      static_cast<Backend&>(reference).sum_squares(make_tensor(&want, DType::f64, {1}), x.cpu);
      bool have_first = false;
      on_every_target([&] {
        for (int threads : {1, 3}) {
          double got = -1;
          make_tested_backend(threads)->sum_squares(make_tensor(&got, DType::f64, {1}), x.cpu);
          EXPECT_NEAR(got, want, 1e-15 * double(n) * want);
          if (have_first) {
            EXPECT_EQ(got, first);
          }
          first = got, have_first = true;
        }
      });
    }
  }
}

TEST(SumSquares, NotFiniteShows) {
  const auto backend = make_tested_backend(2);
  for (double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    for (DType type : {DType::f32, DType::bf16}) {
      Operand x(type, {100'000});
      x.fill([&](int64_t i) { return i == 77'777 ? bad : 0.5; });
      double sum = 0;
      backend->sum_squares(make_tensor(&sum, DType::f64, {1}), x.cpu);
      EXPECT_FALSE(std::isfinite(sum));
    }
  }
}

}  // namespace
}  // namespace nibble::test
