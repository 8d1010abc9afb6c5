// SPDX-License-Identifier: MIT
// Logits, losses and greedy continuations against Hugging Face (tests/golden), on every backend.
#include <gtest/gtest.h>

#include "generate/generator.h"
#include "model/evaluate.h"
#include "support/backends.h"
#include "support/golden.h"

namespace nibble::test {
namespace {

struct GoldenModel {
  std::string folder, weights;
  std::optional<Recipe> recipe, head_recipe;
  ScaleRule rule = ScaleRule::four_over_six;
};

std::vector<GoldenModel> golden_models() {
  return {
      {"qwen3_tied", "model.safetensors", {}, {}},
      {"qwen3_untied", "model.safetensors", {}, {}},
      {"qwen2_tied", "model.safetensors", {}, {}},
      {"qwen2_untied", "model.safetensors", {}, {}},
      {"llama_tied", "model.safetensors", {}, {}},
      {"llama3_rope", "model.safetensors", {}, {}},
      {"yarn_rope", "model.safetensors", {}, {}},
      // The projections lie on the NVFP4 grid: quantising them (either rule) must lose nothing.
      {"qwen3_tied_nvfp4", "model.safetensors", Recipe::nvfp4, Recipe::bf16},
      {"qwen3_tied_nvfp4", "model.safetensors", Recipe::nvfp4, Recipe::bf16, ScaleRule::absmax},
      {"qwen3_tied_nvfp4", "model.safetensors", Recipe::bf16, Recipe::bf16},
      {"predecessor", "model-nvfp4.dat", {}, {}},
  };
}

class Golden : public testing::TestWithParam<std::tuple<BackendCase, GoldenModel>> {
 protected:
  void SetUp() override {
    const auto& [backend, golden] = GetParam();
    backend_ = backend.make();
    const auto dir = golden_dir() / golden.folder;
    expected_ = open_tensor_source(dir / "expected.safetensors");
    source_ = open_tensor_source(dir / golden.weights);
    LoadOptions load{golden.recipe, golden.head_recipe, golden.rule, backend.weights};
    model_ = load_model(*backend_, load_config(dir / "config.json"), *source_, load);
  }
  const BackendCase& backend_case() const { return std::get<0>(GetParam()); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<TensorSource> expected_, source_;
  Model model_;
};

TEST_P(Golden, LogitsAndLoss) {
  const auto ids = read_all<int64_t>(*expected_, "input_ids");
  const auto& shape = expected_->at("input_ids").shape;
  std::vector<int64_t> labels;
  if (expected_->find("labels")) labels = read_all<int64_t>(*expected_, "labels");
  const Evaluation e = evaluate(*backend_, model_, ids, labels, shape[0], shape[1],
                                {backend_case().compute, backend_case().stat, Activations::none});
  EXPECT_LT(relative_l2(e.logits, read_all<float>(*expected_, "logits")), backend_case().bound);
  if (!labels.empty()) {
    const double loss = double(read_all<float>(*expected_, "loss")[0]);
    EXPECT_LT(std::abs(e.loss - loss) / loss, backend_case().bound);
  }
}

class GoldenBf16 : public Golden {};
TEST_P(GoldenBf16, LogitsPointTheSameWay) {
  const auto ids = read_all<int64_t>(*expected_, "input_ids");
  const auto& shape = expected_->at("input_ids").shape;
  const Evaluation e = evaluate(*backend_, model_, ids, {}, shape[0], shape[1],
                                {backend_case().compute, backend_case().stat, Activations::none});
  EXPECT_GE(cosine(e.logits, read_all<float>(*expected_, "logits")), 0.999);
}

// The same logits through the cache, a few tokens at a time.
TEST_P(Golden, LogitsThroughTheCache) {
  const auto ids64 = read_all<int64_t>(*expected_, "input_ids");
  const auto& shape = expected_->at("input_ids").shape;
  const std::vector<int32_t> ids(ids64.begin(), ids64.begin() + shape[1]);
  EngineOptions o{128,
                  0,
                  backend_case().compute,
                  backend_case().stat,
                  backend_case().compute,
                  Activations::none};
  Engine engine(*backend_, model_, o);
  std::vector<float> logits;
  for (size_t i = 0; i < ids.size(); i += 7) {
    const auto part =
        engine.extend_all(std::span(ids).subspan(i, std::min<size_t>(7, ids.size() - i)));
    logits.insert(logits.end(), part.begin(), part.end());
  }
  auto expected = read_all<float>(*expected_, "logits");
  expected.resize(logits.size());
  EXPECT_LT(relative_l2(logits, expected), backend_case().bound);
}

class GoldenGreedy : public Golden {};  // the models made with Hugging Face
TEST_P(GoldenGreedy, Ids) {
  const auto greedy = read_all<int64_t>(*expected_, "greedy");
  const std::vector<int32_t> prompt(greedy.begin(), greedy.begin() + 8);
  const std::vector<int32_t> want(greedy.begin() + 8, greedy.end());
  EngineOptions o{64,
                  0,
                  backend_case().compute,
                  backend_case().stat,
                  backend_case().compute,
                  Activations::none};
  for (const bool replay : {false, true}) {
    Engine engine(*backend_, model_, o);
    GenerateOptions g;
    g.max_tokens = int64_t(want.size());
    g.replay = replay;
    g.check_collapse = false;
    EXPECT_EQ(generate(engine, prompt, g).ids, want);
  }
}

std::string param_name(const testing::TestParamInfo<Golden::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).folder + "_" +
         std::to_string(info.index);
}

std::vector<GoldenModel> huggingface_models() {
  auto models = golden_models();
  std::erase_if(models, [](const GoldenModel& m) { return m.folder == "predecessor"; });
  return models;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGreedy,
                         testing::Combine(testing::ValuesIn(backend_cases()),
                                          testing::ValuesIn(huggingface_models())),
                         param_name);
INSTANTIATE_TEST_SUITE_P(All, GoldenBf16,
                         testing::Combine(testing::Values(bf16_case()),
                                          testing::ValuesIn(golden_models())),
                         param_name);
INSTANTIATE_TEST_SUITE_P(All, Golden,
                         testing::Combine(testing::ValuesIn(backend_cases()),
                                          testing::ValuesIn(golden_models())),
                         param_name);

}  // namespace
}  // namespace nibble::test
