// SPDX-License-Identifier: MIT
// bf16 masters and gradients with int8 moments: a step of the backend against one of the scalar
// rules from the same state. The GPU's kernel folds constants, fuses products and takes approximate
// roots and quotients, so a value may fall on the other side of a rounding. The CPU has the same
// bits.
#include <cmath>
#include <cstdlib>

#include "ops/adamw_support.h"

namespace nibble::test {
namespace {

// bf16 in order, without a gap at zero.
int ordered(uint16_t bits) { return bits & 0x8000 ? -int(bits & 0x7fff) : int(bits); }
uint16_t bf16_bits(const Parameter& p, int64_t i) {
  return reinterpret_cast<const bf16_t*>(p.master.data)[i].bits;
}
// Codes of m in order of their values; both zeros are one.
int ordered_code(uint8_t code) { return code & 128 ? -int(code & 127) : int(code); }

struct Differences {
  int64_t master = 0, first = 0, second = 0, elements = 0;
};

// After a step of both from the same state. Factors of the bounds are over what was derived.
void compare(const Parameter& got, const Parameter& want, Differences* d) {
  const int64_t n = got.n(), blocks = (n + kMomentBlock - 1) / kMomentBlock;
  const auto view = [&](const std::vector<uint8_t>& bytes) {
    return MomentView(MomentFormat::int8, const_cast<uint8_t*>(bytes.data()), n);
  };
  const MomentView gm = view(got.first_moment()), wm = view(want.first_moment());
  const MomentView gv = view(got.second_moment()), wv = view(want.second_moment());
  for (int64_t b = 0; b < blocks; ++b) {
    // Two fused sums, a factor on the way in and one on the way out: below 2^-21.
    ASSERT_NEAR(gm.scales[b], wm.scales[b], 0x1p-20 * double(wm.scales[b])) << "block " << b;
    ASSERT_NEAR(gv.scales[b], wv.scales[b], 0x1p-20 * double(wv.scales[b])) << "block " << b;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int m = std::abs(ordered_code(gm.codes[i]) - ordered_code(wm.codes[i]));
    const int v = std::abs(int(gv.codes[i]) - int(wv.codes[i]));
    const int w = std::abs(ordered(bf16_bits(got, i)) - ordered(bf16_bits(want, i)));
    ASSERT_LE(m, 1) << "m of element " << i;
    ASSERT_LE(v, 1) << "v of element " << i;
    ASSERT_LE(w, 1) << "master of element " << i;
    d->first += m, d->second += v, d->master += w;
  }
  d->elements += n;
}

// The copy is that of the backend's own master, exactly; blocks that stayed keep their codes.
void expect_own_copy(const Parameter& p, const std::vector<uint16_t>& before,
                     const std::vector<uint8_t>& packed_before) {
  const auto packed = p.packed_bytes();
  const int64_t n = p.n();
  for (int64_t b = 0; b < n / 16; ++b) {
    float w[16];
    bool changed = false;
    for (int64_t k = 0; k < 16; ++k) {
      const uint16_t bits = bf16_bits(p, 16 * b + k);
      w[k] = to_float(bf16_t{bits});
      changed |= bits != before[size_t(16 * b + k)];
    }
    uint8_t codes[8], scale;
    quantize_block(w, ScaleRule::four_over_six, 1, codes, &scale);
    const uint8_t* expected = changed ? codes : packed_before.data() + 8 * b;
    if (!changed) scale = packed_before[size_t(n / 2 + b)];
    ASSERT_TRUE(std::equal(expected, expected + 8, packed.begin() + 8 * b)) << "block " << b;
    ASSERT_EQ(packed[size_t(n / 2 + b)], scale) << "block " << b;
  }
}

struct Gradients {
  const char* name;
  double (*at)(int step, int64_t i);
  bool scramble;
};
constexpr Gradients kGradients[] = {
    {"of one size", [](int t, int64_t i) { return 1e-3 * normal_at(5, uint64_t(t), i); }, false},
    {"of many sizes, any codes",
     [](int t, int64_t i) {
       const auto r = philox(6, uint64_t(t), uint64_t(i));
       if (r[0] % 37 == 0) return 0.0;
       return std::pow(10.0, -9.0 * uniform_double(r[1], r[2])) * (r[3] % 2 ? 1 : -1);
     },
     true},
    {"zero in most blocks",
     [](int t, int64_t i) { return i / 256 % 4 ? 0.0 : 1e-5 * normal_at(7, uint64_t(t), i); },
     false},
};

TEST(AdamwClose, AStepIsThatOfTheScalarRulesButForRoundings) {
  // Rows of whole moment blocks, and rows whose blocks lie across them.
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{128, 512}, {132, 496}}) {
    for (const Gradients& gradients : kGradients) {
      SCOPED_TRACE(gradients.name);
      const ParameterCase c{MomentFormat::int8, DType::bf16, DType::bf16, rows, cols, PackedCase{}};
      RefBackend<double> reference;
      const auto backend = make_tested_backend(2);
      Parameter got(*backend, c), want(reference, c);
      got.set_master([](int64_t i) { return 0.05 * normal_at(1, 0, i); });
      got.quantize_master();
      Differences d;
      for (int t = 1; t <= 4; ++t) {
        got.set_grad([&](int64_t i) { return gradients.at(t, i); });
        if (t == 3 && gradients.scramble) got.scramble_codes(6);
        AdamwStep s = adamw_at(t, t == 4 ? 1e-5f : 1e-3f);
        s.weight_decay = t == 2 ? 0.1f : 0.0f;
        s.grad_scale = t == 3 ? 0.37f : 1.0f;
        want.take_state(got);
        std::vector<uint16_t> before;
        for (int64_t i = 0; i < got.n(); ++i) before.push_back(bf16_bits(got, i));
        const auto packed_before = got.packed_bytes();
        got.step(s);
        want.step(s);
        ASSERT_NO_FATAL_FAILURE(compare(got, want, &d)) << "step " << t;
        ASSERT_NO_FATAL_FAILURE(expect_own_copy(got, before, packed_before)) << "step " << t;
      }
      const auto share = [&](int64_t n) { return double(n) / double(d.elements); };
      std::printf("%s: master %.2g, m %.2g, v %.2g\n", gradients.name, share(d.master),
                  share(d.first), share(d.second));
      // A new master errs by an ulp of fp32, or by 2^-20 of its update: 2^-12 of a bf16 step where
      // nothing but the update is left.
      EXPECT_LE(share(d.master), 5e-4);
      // A midpoint moved by 2^-17 of itself, and values by 2^-21, between codes 1/70 apart.
      EXPECT_LE(share(d.first), 1e-3);
      // Logarithms of fp32, 5e-5 of a step together, and values by 2^-20, twelve times that.
      EXPECT_LE(share(d.second), 2e-4);
    }
  }
}

// More elements than a grid that stays takes at once.
TEST(AdamwClose, ManyElements) {
  const ParameterCase c{MomentFormat::int8, DType::bf16, DType::bf16, 2600, 512, PackedCase{}};
  RefBackend<double> reference;
  const auto backend = make_tested_backend(2);
  Parameter got(*backend, c), want(reference, c);
  got.set_master([](int64_t i) { return 0.05 * normal_at(1, 0, i); });
  got.quantize_master();
  want.take_state(got);
  want.quantize_master();
  for (Parameter* p : {&got, &want}) {
    p->set_grad([](int64_t i) { return 1e-4 * normal_at(2, 0, i); });
    p->step(adamw_at(1, 1e-3f));
  }
  Differences d;
  ASSERT_NO_FATAL_FAILURE(compare(got, want, &d));
  EXPECT_LE(d.master, d.elements / 2000);
  EXPECT_LE(d.first, d.elements / 1000);
  EXPECT_LE(d.second, d.elements / 5000);
}

// Values that leave the short way: the general one has the bits of the scalar rules.
TEST(AdamwClose, ValuesOutOfRangeGiveTheScalarBits) {
  const ParameterCase c{MomentFormat::int8, DType::bf16, DType::bf16, 8, 512, PackedCase{}};
  RefBackend<double> reference;
  const auto backend = make_tested_backend(2);
  for (const double size : {1e-30, 1e17}) {
    Parameter got(*backend, c), want(reference, c);
    got.set_master([](int64_t i) { return 0.05 * normal_at(1, 0, i); });
    got.quantize_master();
    want.take_state(got);
    want.quantize_master();
    for (Parameter* p : {&got, &want}) {
      p->set_grad([&](int64_t i) { return size * normal_at(2, 0, i); });
      p->step(adamw_at(1, 1e-3f));
    }
    EXPECT_EQ(got.state(), want.state()) << size;
  }
}

// Masters of every size up to infinity's neighbours: in the same blocks as small ones.
TEST(AdamwClose, LargeMastersAreMovedAndCopied) {
  const ParameterCase c{MomentFormat::int8, DType::bf16, DType::bf16, 16, 512, PackedCase{}};
  RefBackend<double> reference;
  const auto backend = make_tested_backend(2);
  Parameter got(*backend, c), want(reference, c);
  got.set_master([](int64_t i) {
    return normal_at(1, 0, i) * (i / 256 % 2 ? std::exp2(double(i / 16 % 120)) : 0.3);
  });
  got.quantize_master();
  want.take_state(got);
  want.quantize_master();
  Differences d;
  for (Parameter* p : {&got, &want}) {
    p->set_grad([&](int64_t i) { return normal_at(2, 0, i); });
    p->step(adamw_at(1, 1.0f));
  }
  ASSERT_NO_FATAL_FAILURE(compare(got, want, &d));
  EXPECT_LE(d.master, d.elements / 2000);
}

}  // namespace
}  // namespace nibble::test
