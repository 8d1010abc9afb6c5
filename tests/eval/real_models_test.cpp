// SPDX-License-Identifier: MIT
// Real weights against transformers in fp32 on the same expanded values: logits of the last
// position of rendered chats, twenty greedy tokens, the loss of windows of English and Traditional
// Chinese.
#include <gtest/gtest.h>

#include <cmath>

#include "eval/text_loss.h"
#include "formats/tensor_source.h"
#include "runtime/runtime.h"
#include "support/real_weights.h"
#include "support/shared_data.h"
#include "support/tested_backend.h"

namespace nibble::test {
namespace {

// Relative L2 and relative loss. fp32 sums of 24 to 30 layers differ by a few 1e-6; the bound has
// room for another order of sums, not for a wrong scale or bias.
constexpr double kBound = 1e-4;
// Where the two best logits are closer than this, either may win.
constexpr float kGap = 0.02f;

class Golden {
 public:
  explicit Golden(const std::filesystem::path& file) : source_(open_tensor_source(file)) {}
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const TensorInfo& info = source_->at(name);
    std::vector<T> out(size_t(info.numel()));
    source_->read(info, 0, std::as_writable_bytes(std::span(out)));
    return out;
  }
  bool has(const std::string& name) const { return source_->find(name) != nullptr; }

 private:
  std::unique_ptr<TensorSource> source_;
};

double relative_l2(std::span<const float> a, std::span<const float> b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double(a[i]) - double(b[i]);
    difference += d * d;
    norm += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / norm);
}

RuntimeOptions dense(const std::filesystem::path& weights, FloatChoice compute) {
  RuntimeOptions o;
  o.model.model = weights;
  o.device = testing_cuda() ? Device(Device::cuda) : Device(Device::cpu);
  o.compute = compute;
  o.recipe = RecipeChoice::bf16;  // nothing quantised
  o.activations = ActivationsChoice::bf16;
  return o;
}

class RealModels : public testing::TestWithParam<RealModel> {};

TEST_P(RealModels, LogitsGreedyTokensAndLossesAreThoseOfTransformers) {
  NIBBLE_WEIGHTS_OR_SKIP(weights, GetParam());
  NIBBLE_SHARED_FILE_OR_SKIP(file, "golden/real/" + std::string(GetParam().name) + ".safetensors");
  const Golden golden(file);
  const Runtime r = open_runtime(dense(weights, FloatChoice::fp32), TokenizerNeed::required);
  EngineOptions options = r.engine_options({});
  options.context = 128;
  options.cache = DType::f32;
  Engine engine(*r.backend, r.model, options);
  int chats = 0;
  for (; golden.has("ids" + std::to_string(chats)); ++chats) {
    const std::string n = std::to_string(chats);
    const auto wide = golden.read<int64_t>("ids" + n);
    const auto expected = golden.read<float>("logits" + n);
    engine.reset();
    const auto logits = engine.extend(std::vector<int32_t>(wide.begin(), wide.end()));
    ASSERT_EQ(logits.size(), expected.size());
    EXPECT_LT(relative_l2(logits, expected), kBound) << "chat " << n;
    const auto greedy = golden.read<int64_t>("greedy" + n);
    const auto gaps = golden.read<float>("gaps" + n);
    int32_t id = engine.sample({}, 0);
    for (size_t i = 0; i < greedy.size() && gaps[i] >= kGap; ++i) {
      ASSERT_EQ(id, greedy[i]) << "chat " << n << ", token " << i;
      id = engine.step(id, {}, i + 1);
    }
  }
  EXPECT_EQ(chats, 6);
  for (const char* j : {"0", "1"}) {
    const auto expected = golden.read<float>(std::string("nll") + j);
    const auto ids = golden.read<int64_t>(std::string("text") + j);
    const size_t T = ids.size() / expected.size();
    TextWindows windows{j, {}};
    for (size_t b = 0; b < expected.size(); ++b) {
      windows.ids.emplace_back(ids.begin() + std::ptrdiff_t(b * T),
                               ids.begin() + std::ptrdiff_t((b + 1) * T));
    }
    const TextReader reader{*r.backend, r.model, {}};
    const TextLoss loss = text_loss(reader, windows);
    for (size_t b = 0; b < expected.size(); ++b) {
      EXPECT_NEAR(loss.windows[b] / double(expected[b]), 1, kBound) << "text " << j << " " << b;
    }
  }
}

TEST_P(RealModels, LossesInBf16AreWithinHalfAPercent) {
  NIBBLE_WEIGHTS_OR_SKIP(weights, GetParam());
  NIBBLE_SHARED_FILE_OR_SKIP(file, "golden/real/" + std::string(GetParam().name) + ".safetensors");
  const Golden golden(file);
  const Runtime r = open_runtime(dense(weights, FloatChoice::bf16), TokenizerNeed::required);
  for (const char* j : {"0", "1"}) {
    const auto expected = golden.read<float>(std::string("nll") + j);
    const auto ids = golden.read<int64_t>(std::string("text") + j);
    TextWindows windows{j, {}};
    windows.ids.emplace_back(ids.begin(),
                             ids.begin() + std::ptrdiff_t(ids.size() / expected.size()));
    const TextReader reader{*r.backend, r.model, {DType::bf16, DType::bf16, Activations::none}};
    const TextLoss loss = text_loss(reader, windows);
    EXPECT_NEAR(loss.loss / double(expected[0]), 1, 0.005) << "text " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealModels, testing::Values(kSmolLm2, kQwenHalf, kQwenOneAndHalf),
                         [](const testing::TestParamInfo<RealModel>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = std::isalnum(uint8_t(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace nibble::test
