// SPDX-License-Identifier: MIT
#include "generate/health.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Fixture {
  explicit Fixture(std::optional<Recipe> recipe = {}) {
    LoadOptions load;
    load.recipe = recipe;
    toy = load_toy(*backend, toy_config(), load);
    options.context = 16;
    options.cache = DType::f32;
  }
  void poke(Tensor t, int64_t element, float value) {
    t.as<float>()[element] = value;  // the CPU backend's memory is the host's
  }
  ActivationHealth run() {
    return check_activations(*backend, toy.model, options, random_tokens(5, toy.model.config.V, 1));
  }
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  ToyModel toy;
  EngineOptions options;
};

TEST(FindBadValues, CountsAndPlaces) {
  const std::vector<float> fine = {1, -2, 0};
  EXPECT_FALSE(find_bad_values("x", fine, 3));
  const std::vector<float> bad = {1, 2, 3, kInf, kNan, -kInf};
  const auto found = find_bad_values("x", bad, 3);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, "x");
  EXPECT_EQ(found->problem, "1 NaN, 2 Inf in 6 values, the first at row 1, element 0");
}

TEST(WeightHealth, SoundWeightsHaveNoFindings) {
  for (const auto recipe : {std::optional<Recipe>(), std::optional(Recipe::nvfp4)}) {
    Fixture f(recipe);
    const WeightHealth h = check_weights(*f.backend, f.toy.model);
    EXPECT_TRUE(h.bad.empty());
    EXPECT_GT(h.largest, 0);
    // Every parameter of the table; a dense tied head is the embedding and counts once.
    const size_t table = parameter_table(f.toy.model.config).size();
    EXPECT_EQ(size_t(h.tensors), recipe ? table : table - 1);
  }
}

TEST(WeightHealth, NamesANormWithNan) {
  Fixture f;
  f.poke(f.toy.model.weights.block[1].ffn_norm, 7, kNan);
  const WeightHealth h = check_weights(*f.backend, f.toy.model);
  ASSERT_EQ(h.bad.size(), 1u);
  EXPECT_EQ(h.bad[0].place, "model.layers.1.post_attention_layernorm.weight");
  EXPECT_NE(h.bad[0].problem.find("the first at element 7"), std::string::npos);
}

TEST(WeightHealth, NamesThePartOfAStackedWeight) {
  Fixture f;
  const Config& c = f.toy.model.config;
  // Row 2 of v, which lies behind the rows of q and k.
  f.poke(f.toy.model.weights.block[2].qkv.dense, ((c.Hq + c.Hkv) * c.D + 2) * c.C + 3, kInf);
  const WeightHealth h = check_weights(*f.backend, f.toy.model);
  ASSERT_EQ(h.bad.size(), 1u);
  EXPECT_EQ(h.bad[0].place, "model.layers.2.self_attn.v_proj.weight");
  EXPECT_NE(h.bad[0].problem.find("row 2, element 3"), std::string::npos);
}

TEST(ActivationHealth, SoundModel) {
  Fixture f;
  const ActivationHealth h = f.run();
  EXPECT_FALSE(h.first_bad);
  // embed, ten per layer, final_norm and logits.
  EXPECT_EQ(h.tensors, 1 + 10 * f.toy.model.config.L + 2);
  EXPECT_GT(h.largest, 0);
  EXPECT_FALSE(h.largest_name.empty());
}

TEST(ActivationHealth, NamesTheFirstBadIntermediate) {
  Fixture norm;
  norm.poke(norm.toy.model.weights.block[1].attn_norm, 0, kNan);
  ASSERT_TRUE(norm.run().first_bad);
  EXPECT_EQ(norm.run().first_bad->place, "layers.1.attn_norm");

  Fixture down;
  down.poke(down.toy.model.weights.block[0].down.dense, 0, kInf);
  ASSERT_TRUE(down.run().first_bad);
  EXPECT_EQ(down.run().first_bad->place, "layers.0.ffn_out");

  Fixture final;
  final.poke(final.toy.model.weights.final_norm, 1, kNan);
  ASSERT_TRUE(final.run().first_bad);
  EXPECT_EQ(final.run().first_bad->place, "final_norm");
}

TEST(Collapse, Reasons) {
  const std::vector<int32_t> zeros = {5, 0, 0, 0, 0, 7}, one = {9, 9, 9, 9}, mixed = {9, 9, 8, 9};
  const std::vector<int32_t> few = {0, 0, 0}, spread = {0, 1, 0, 0, 1, 0, 0, 0};
  EXPECT_TRUE(collapse_reason(zeros, "x"));
  EXPECT_TRUE(collapse_reason(one, "x"));
  EXPECT_TRUE(collapse_reason(mixed, "so!!!!"));
  EXPECT_FALSE(collapse_reason(mixed, "so!!!"));
  EXPECT_FALSE(collapse_reason(few, "!!!!"));
  EXPECT_FALSE(collapse_reason(spread, "x"));
  EXPECT_FALSE(collapse_reason({}, ""));
}

}  // namespace
}  // namespace nibble::test
