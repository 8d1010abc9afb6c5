// SPDX-License-Identifier: MIT
// Many updates or sums in one call: bit for bit those of a call each.
#include "ops/adamw_support.h"

namespace nibble::test {
namespace {

// Of every kind that a backend may do together, more of them than one launch of a GPU has, whole
// and with ends that are not.
std::vector<ParameterCase> many_parameters() {
  const PackedCase packed{}, among_others{ScaleRule::four_over_six, false, 3, 5};
  std::vector<ParameterCase> cases;
  for (int64_t i = 0; i < 30; ++i) {
    cases.push_back({MomentFormat::int8, DType::bf16, DType::bf16, 8 + 4 * (i % 5), 512, packed});
    cases.push_back({MomentFormat::f32, DType::f32, DType::f32, 1, 100 + 37 * i});
  }
  for (int64_t i = 0; i < 20; ++i) {
    cases.push_back({MomentFormat::f32, DType::f32, DType::f32, 1, 2560});
  }
  cases.push_back({MomentFormat::int8, DType::bf16, DType::bf16, 33, 496, among_others});
  cases.push_back({MomentFormat::int8, DType::bf16, DType::bf16, 7, 1999});
  cases.push_back({MomentFormat::int8, DType::bf16, DType::bf16, 1, 100});
  cases.push_back({MomentFormat::int8, DType::f32, DType::bf16, 5, 512, packed});
  cases.push_back({MomentFormat::nvfp4, DType::bf16, DType::f32, 5, 512});
  cases.push_back({MomentFormat::int8, DType::bf16, DType::bf16, 1200, 2560, packed});
  return cases;
}

TEST(AdamwBatch, ManyUpdatesAreThoseOfACallEach) {
  const auto backend = make_tested_backend(2);
  std::vector<std::unique_ptr<Parameter>> together, apart;
  for (const ParameterCase& c : many_parameters()) {
    for (auto* list : {&together, &apart}) {
      Parameter& p = *list->emplace_back(std::make_unique<Parameter>(*backend, c));
      const auto seed = uint64_t(list->size());
      p.set_master([&](int64_t i) { return 0.05 * normal_at(seed, 0, i); });
      if (c.packed) p.quantize_master();
    }
  }
  for (int t = 1; t <= 2; ++t) {
    std::vector<AdamwUpdate> updates;
    for (size_t k = 0; k < together.size(); ++k) {
      AdamwStep s = adamw_at(t, k % 3 ? 1e-3f : 4e-3f);
      s.stream = 100 + k;
      s.weight_decay = k % 4 == 0 ? 0.1f : 0.0f;
      if (k % 7 == 6) s.beta2 = 0.95f;
      for (auto* list : {&together, &apart}) {
        // Some masters and gradients that need another way than most.
        (*list)[k]->set_grad([&](int64_t i) {
          return 1e-3 * normal_at(3 + k, uint64_t(t), i) * (i / 256 == 5 ? 1e25 : 1.0);
        });
      }
      const int64_t n = together[k]->n(), cut = n / 2 / kMomentBlock * kMomentBlock;
      apart[k]->step(s);
      updates.push_back(together[k]->update(s, 0, cut));
      updates.push_back(together[k]->update(s, cut, n - cut));
    }
    backend->adamw_steps(updates);
    for (size_t k = 0; k < together.size(); ++k) {
      ASSERT_EQ(together[k]->state(), apart[k]->state()) << "parameter " << k << ", step " << t;
    }
  }
}

TEST(SumSquaresBatch, ManySumsAreThoseOfACallEach) {
  const auto backend = make_tested_backend(2);
  std::vector<std::unique_ptr<Operand>> operands;
  std::vector<Tensor> x;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t n = i % 50 == 7 ? 0 : i % 100 == 33 ? 3'000'001 : 1 + 97 * i;
    operands.push_back(std::make_unique<Operand>(i % 3 ? DType::bf16 : DType::f32,
                                                 std::initializer_list<int64_t>{n}));
    operands.back()->normal(uint64_t(i));
    x.push_back(operands.back()->cpu);
  }
  std::vector<double> sums(x.size(), -1), again(x.size(), -1);
  const auto all = [](std::vector<double>& v) {
    return make_tensor(v.data(), DType::f64, {int64_t(v.size())});
  };
  backend->sums_of_squares(all(sums), x);
  backend->sums_of_squares(all(again), x);
  EXPECT_EQ(sums, again);
  for (size_t i = 0; i < x.size(); ++i) {
    double one = -1;
    backend->sum_squares(make_tensor(&one, DType::f64, {1}), x[i]);
    EXPECT_EQ(sums[i], one) << "tensor " << i << " of " << x[i].numel();
  }
}

}  // namespace
}  // namespace nibble::test
