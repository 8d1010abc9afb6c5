// SPDX-License-Identifier: MIT
// On a machine without a GPU: what the backend would launch on each compute capability stays within
// that one's limits. The fake runtime refuses a launch with more shared memory or threads than
// there are, clusters before 9.0, and kernels made of 9.0's own instructions elsewhere.
#include <gtest/gtest.h>

#include <set>

#include "scenes.h"

namespace nibble::test {
namespace {

class Dispatch : public testing::TestWithParam<FakeGpu> {};

constexpr int64_t kSequences[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 65, 96, 128, 192, 256};
constexpr int64_t kPrompts[] = {1, 2, 7, 8, 9, 16, 33, 64, 65, 128, 200, 256, 257, 512, 2048, 8192};
constexpr int64_t kSteps[] = {1, 64, 96, 128, 129, 256, 300, 2048};

std::set<std::string> kernels_of(const std::vector<Scene>& scenes) {
  std::set<std::string> names;
  for (const Scene& s : scenes) {
    EXPECT_FALSE(s.launches.empty()) << s.name;
    for (const FakeLaunch& l : s.launches) names.insert(l.kernel);
  }
  return names;
}

bool any_has(const std::set<std::string>& names, const char* part) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

TEST_P(Dispatch, DecodingFits) {
  for (const SceneShape& shape : scene_shapes()) {
    SCOPED_TRACE(shape.name);
    const auto names = kernels_of(decode_scenes(GetParam(), shape.config, kSequences));
    EXPECT_EQ(any_has(names, "skinny_gemm_wgmma"), GetParam().capability() == 90);
    EXPECT_FALSE(any_has(names, "general_kernel")) << "plain products in a step of decoding";
    EXPECT_FALSE(any_has(names, "attention_rows")) << "plain attention in a step of decoding";
  }
}

// A panel of dequantised weights is eight times the packed bytes: nobody with few sequences pays
// that. From eight on those GPUs do whose blocks have no room for eight tokens of a wide product
// and no clusters to share them.
TEST_P(Dispatch, FewSequencesNeverWaitForPanels) {
  constexpr int64_t kFew[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64};
  for (const SceneShape& shape : scene_shapes()) {
    const bool room =
        GetParam().major >= 9 || 8 * (2 * std::max(shape.config.F, shape.config.C) + 64) <=
                                     int64_t(GetParam().shared_per_block);
    for (const Scene& scene : decode_scenes(GetParam(), shape.config, kFew)) {
      const bool few =
          scene.name.size() == std::string("decode 1").size() && scene.name != "decode 8";
      const bool panels = any_has(kernels_of({scene}), "dequantize_kernel");
      EXPECT_EQ(panels, !few && !room) << shape.name << ", " << scene.name;
    }
  }
}

TEST_P(Dispatch, DecodingOverAnF8CacheFits) {
  const SceneShape& shape = scene_shapes()[0];
  const auto names = kernels_of(decode_scenes(GetParam(), shape.config, kSequences, Cache::f8));
  EXPECT_FALSE(any_has(names, "attention_rows"));
}

TEST_P(Dispatch, PromptsFit) {
  for (const SceneShape& shape : scene_shapes()) {
    SCOPED_TRACE(shape.name);
    for (const Cache cache : {Cache::bf16, Cache::f8}) {
      const auto names = kernels_of(prompt_scenes(GetParam(), shape.config, kPrompts, cache));
      EXPECT_FALSE(any_has(names, "general_kernel"));
      EXPECT_FALSE(any_has(names, "attention_rows"));
    }
  }
}

TEST_P(Dispatch, TrainingFits) {
  for (const SceneShape& shape : scene_shapes()) {
    SCOPED_TRACE(shape.name);
    Config config = shape.config;
    config.V = std::min<int64_t>(config.V, 16384);  // all of it is read, as zeros
    const auto names = kernels_of(training_scenes(GetParam(), config, kSteps));
    EXPECT_FALSE(any_has(names, "product_kernel")) << "plain gradients in a step of training";
    EXPECT_FALSE(any_has(names, "back_queries_kernel") && !any_has(names, "flash_back_queries"));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, Dispatch, testing::ValuesIn(fake_gpus().begin(), fake_gpus().end()),
                         [](const auto& info) {
                           return "CC" + std::to_string(info.param.capability());
                         });

}  // namespace
}  // namespace nibble::test
