// SPDX-License-Identifier: MIT
// What the storage formats do to training, at the level of the optimizer: weights move as far as
// they should, updates stay bounded, the second moment follows its gradients, and the choices that
// kept the predecessor from learning are shown to fail.
#include <cmath>

#include "ops/adamw_support.h"

namespace nibble::test {
namespace {

std::unique_ptr<Backend> backend() { return make_tested_backend(2); }

double mean_along(const std::vector<double>& from, const std::vector<double>& to,
                  const std::function<double(int64_t)>& direction) {
  double sum = 0;
  for (size_t i = 0; i < from.size(); ++i) sum += (to[i] - from[i]) * direction(int64_t(i));
  return sum / double(from.size());
}

// At lr 1e-5 an update is a sixth of a step of bf16 at a weight of 0.01. Stochastic rounding makes
// it as far as fp32 on average; nearest rounding stands still wherever half a step is more.
TEST(AdamwStatistics, StochasticRoundingRealisesTheIntendedMovement) {
  constexpr int64_t kN = 1 << 18;
  constexpr int kSteps = 40;
  const auto cpu = backend();
  Parameter exact(*cpu, {MomentFormat::f32, DType::f32, DType::f32, 1, kN});
  Parameter rounded(*cpu, {MomentFormat::int8, DType::bf16, DType::bf16, 1, kN});
  const auto start = [](int64_t i) {
    return double(to_float(to_bf16(float(0.01 * normal_at(1, 0, i)))));
  };
  const auto sign = [](int64_t i) { return philox(2, 0, uint64_t(i))[0] % 2 ? 1.0 : -1.0; };
  std::vector<float> nearest;
  for (Parameter* p : {&exact, &rounded}) {
    p->set_master(start);
    p->set_grad([&](int64_t i) { return 1e-3 * sign(i); });
  }
  const auto before = rounded.master_values();
  for (double w : before) nearest.push_back(float(w));
  for (int t = 1; t <= kSteps; ++t) {
    exact.step(adamw_at(t, 1e-5f));
    rounded.step(adamw_at(t, 1e-5f));
    for (size_t i = 0; i < nearest.size(); ++i) {  // a constant gradient: the update is +-1
      nearest[i] = to_float(to_bf16(nearest[i] - 1e-5f * float(sign(int64_t(i)))));
    }
  }
  const double wanted = mean_along(before, exact.master_values(), sign);
  EXPECT_NEAR(wanted, -1e-5 * kSteps, 1e-6);
  EXPECT_NEAR(mean_along(before, rounded.master_values(), sign) / wanted, 1, 0.01);
  const std::vector<double> stuck(nearest.begin(), nearest.end());
  const double realised = mean_along(before, stuck, sign) / wanted;
  EXPECT_GT(realised, 0.2);
  EXPECT_LT(realised, 0.35);
}

// Updates of three tenths of a step of bf16: rounded to nearest not one weight ever moves, rounded
// stochastically they go as far as they should on average.
TEST(AdamwStatistics, NearestRoundingLosesWhatIsBelowHalfAStep) {
  constexpr int64_t kN = 1 << 14;
  constexpr int kSteps = 50;
  const double step = 0.3 * 0x1p-14;  // bf16 in [2^-7, 2^-6) has steps of 2^-14
  const auto moved = [&](MasterRounding rounding, MomentFormat format) {
    const auto cpu = backend();
    Parameter p(*cpu, {format, DType::bf16, DType::bf16, 1, kN});
    p.set_master([](int64_t i) { return 1.5 * 0x1p-7 + double(i % 16) * 0x1p-14; });
    p.set_grad([](int64_t) { return 1.0; });
    const auto before = p.master_values();
    for (int t = 1; t <= kSteps; ++t) {
      AdamwStep s = adamw_at(t, float(step));
      s.rounding = rounding;
      p.step(s);
    }
    return -mean_along(before, p.master_values(), [](int64_t) { return 1.0; });
  };
  for (MomentFormat format : {MomentFormat::f32, MomentFormat::int8}) {
    EXPECT_EQ(moved(MasterRounding::nearest, format), 0);
    // The sum of 50 draws, 16384 times: a deviation of 0.2 % of the way.
    EXPECT_NEAR(moved(MasterRounding::stochastic, format) / (step * kSteps), 1, 0.01);
  }
}

// Every element has its own size of gradient, log-normal over twelve decades, so that each moment
// block holds many decades.
double spread(int64_t i) { return std::pow(10.0, 2 * normal_at(3, 0, i) - 4); }

struct Bounds {
  double largest = 0;  // |update| / lr of any step
  int64_t zeros = 0;   // second moments stored as zero although a gradient was seen
};
Bounds run_wide_gradients(MomentFormat format, int steps) {
  constexpr int64_t kN = 1 << 13;
  const auto cpu = backend();
  Parameter p(*cpu, {format, DType::f32, DType::f32, 1, kN});
  Bounds b;
  std::vector<double> before(kN);
  for (int t = 1; t <= steps; ++t) {
    // Sparse for some: gradients that stop are where a lost second moment explodes.
    p.set_grad([&](int64_t i) {
      const bool silent = i % 5 == 0 && t % 17 != 1;
      return silent ? 0.0 : spread(i) * normal_at(4, uint64_t(t), i);
    });
    p.step(adamw_at(t, 1.0f));
    const auto after = p.master_values();
    for (size_t i = 0; i < kN; ++i) {
      b.largest = std::max(b.largest, std::abs(after[i] - before[i]));
    }
    before = after;
  }
  const auto v = p.moment_values<Moment::second>();
  b.zeros = std::count(v.begin(), v.end(), 0.0f);
  return b;
}

TEST(AdamwStatistics, UpdatesStayBoundedOnGradientsOfTwelveDecades) {
  for (MomentFormat format :
       {MomentFormat::f32, MomentFormat::bf16, MomentFormat::int8, MomentFormat::nvfp4}) {
    const Bounds b = run_wide_gradients(format, 150);
    EXPECT_LE(b.largest, 10) << moment_format_name(format);
    EXPECT_EQ(b.zeros, 0) << moment_format_name(format);
  }
}

TEST(AdamwStatistics, LinearCodesFlushTheSecondMomentAndExplode) {
  const Bounds b = run_wide_gradients(MomentFormat::int8_linear, 20);
  EXPECT_GT(b.largest, 1000);
  EXPECT_GT(b.zeros, (1 << 13) / 2);
}

// Gradients of one size for a while, then a fifth of it for half of the elements. Their v should
// fall by a factor of 25; a code step is 9 % and a training step moves v by 0.1 %, so nearest
// rounding never moves it (the block's scale does not either: the other half holds it up).
double update_error(const std::vector<double>& got, const std::vector<double>& want) {
  double e = 0, s = 0;
  for (size_t i = 1; i < got.size(); i += 2) {  // the half that shrank
    e += (got[i] - want[i]) * (got[i] - want[i]);
    s += want[i] * want[i];
  }
  return std::sqrt(e / s);
}

constexpr int64_t kFollow = 768;
constexpr int kBefore = 200, kAfter = 3000;
double shrinking_gradient(int t, int64_t i) {
  const double size = (t > kBefore && i % 2 == 1 ? 0.2 : 1.0) * (0.5 + 0.5 * double(i / 2 % 4));
  return double(to_float(to_bf16(float(1e-3 * size * (1 + normal_at(5, uint64_t(t), i))))));
}
// The last update of each element, in units of lr.
std::vector<double> last_update(MomentFormat format) {
  const auto cpu = backend();
  Parameter p(*cpu, {format, DType::f32, DType::bf16, 1, kFollow});
  std::vector<double> before;
  for (int t = 1; t <= kBefore + kAfter; ++t) {
    p.set_grad([&](int64_t i) { return shrinking_gradient(t, i); });
    if (t == kBefore + kAfter) before = p.master_values();
    p.step(adamw_at(t, 1.0f));
  }
  std::vector<double> u = p.master_values();
  for (size_t i = 0; i < u.size(); ++i) u[i] -= before[i];
  return u;
}
// int8 whose v is rounded to nearest: the scalar rules with a constant in place of random bits.
std::vector<double> last_update_nearest() {
  std::vector<uint8_t> mb(moment_bytes(MomentFormat::int8, kFollow)), vb(mb.size());
  const MomentView mv(MomentFormat::int8, mb.data(), kFollow),
      vv(MomentFormat::int8, vb.data(), kFollow);
  const std::vector<uint32_t> half(size_t(kMomentBlock), 0x7fff0000u);
  std::vector<double> u(kFollow);
  for (int t = 1; t <= kBefore + kAfter; ++t) {
    const AdamwTerms<float> terms(adamw_at(t, 1.0f));
    for (int64_t b = 0; b < kFollow / kMomentBlock; ++b) {
      float m[kMomentBlock] = {}, v[kMomentBlock] = {};
      decode_moment<Moment::first>(MomentFormat::int8, mv, b, kMomentBlock, m);
      decode_moment<Moment::second>(MomentFormat::int8, vv, b, kMomentBlock, v);
      for (int64_t i = 0; i < kMomentBlock; ++i) {
        float w = 0;
        adamw_element(terms, float(shrinking_gradient(t, b * kMomentBlock + i)), m[i], v[i], w);
        u[size_t(b * kMomentBlock + i)] = double(w);
      }
      encode_moment<Moment::first>(MomentFormat::int8, mv, b, kMomentBlock, m, half.data());
      encode_moment<Moment::second>(MomentFormat::int8, vv, b, kMomentBlock, v, half.data());
    }
  }
  return u;
}

TEST(AdamwStatistics, SecondMomentFollowsWhenGradientsShrinkFiveFold) {
  const auto want = last_update(MomentFormat::f32);
  const double stochastic = update_error(last_update(MomentFormat::int8), want);
  const double nearest = update_error(last_update_nearest(), want);
  const double bf16 = update_error(last_update(MomentFormat::bf16), want);
  std::printf("update error: int8 %.3f, bf16 %.3f, int8 with nearest %.3f\n", stochastic, bf16,
              nearest);
  EXPECT_LT(stochastic, 0.2);
  EXPECT_LT(bf16, 0.05);
  EXPECT_GT(nearest, 0.6);
}

// The predecessor took each step from its 4-bit copy. With updates of 1 at lr 3e-4 every weight
// rounds back to where it was, however many steps are taken; from the master they add up.
TEST(AdamwStatistics, UpdatesFromTheQuantisedCopyMoveNothing) {
  const int64_t rows = 64, cols = 512;
  const auto moved = [&](UpdateFrom from, float lr, int steps) {
    const auto cpu = backend();
    Parameter p(*cpu, {MomentFormat::int8, DType::bf16, DType::bf16, rows, cols,
                       PackedCase{ScaleRule::absmax}});
    p.set_master([](int64_t i) { return 0.02 * normal_at(1, 0, i); });
    p.quantize_master();
    const auto values = [&] {
      const auto bytes = p.packed_bytes();
      std::vector<float> v(size_t(rows * cols));
      dequantize_rows(bytes.data(), bytes.data() + rows * cols / 2, rows, cols, 1, v.data());
      return v;
    };
    for (int i = 0; i < 3; ++i) {  // to where quantising again changes nothing
      const auto v = values();
      p.set_master([&](int64_t k) { return double(v[size_t(k)]); });
      p.quantize_master();
    }
    p.set_grad([](int64_t i) { return philox(2, 0, uint64_t(i))[0] % 2 ? 1e-3 : -1e-3; });
    const auto before = values();
    for (int t = 1; t <= steps; ++t) {
      AdamwStep s = adamw_at(t, lr);
      s.from = from;
      p.step(s);
    }
    const auto after = values();
    int64_t changed = 0;
    for (size_t i = 0; i < before.size(); ++i) changed += before[i] != after[i];
    return double(changed) / double(before.size());
  };
  EXPECT_EQ(moved(UpdateFrom::quantised, 5e-5f, 20), 0);
  EXPECT_EQ(moved(UpdateFrom::quantised, 3e-4f, 20), 0);
  EXPECT_GT(moved(UpdateFrom::quantised, 3e-3f, 20), 0.5);
  EXPECT_GT(moved(UpdateFrom::master, 3e-4f, 20), 0.5);
}

}  // namespace
}  // namespace nibble::test
