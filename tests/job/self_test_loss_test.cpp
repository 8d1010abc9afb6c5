// SPDX-License-Identifier: MIT
// How far the loss of an exported file may be from the trainer's.
#include <gtest/gtest.h>

#include <cmath>

#include "job/self_test.h"
#include "support/cli.h"
#include "support/train_toy.h"

namespace nibble::test {
namespace {

class SelfTestLoss : public testing::Test {
 protected:
  SelfTestLoss() {
    write_toy_directory(dir_.path());
    exported_.model.model = dir_.path();
    exported_.device = Device::cpu;
    exported_.threads = 1;
    settings_.max_tokens = 1;
    reference_.batch = random_batch({12}, toy_chat_config().V, 3);
    reference_.prompt_ids = {1, 2, 3};
  }
  bool passes(std::optional<double> loss) {
    reference_.loss = loss;
    Lines lines;
    const bool passed =
        self_test(settings_, exported_, reference_, TemplateStyle::qwen3, lines).passed;
    out_ = lines.all;
    return passed;
  }
  struct Lines final : JobEvents {
    void text(std::string_view lines) override { all += lines; }
    std::string all;
  };

  TemporaryDirectory dir_{"self-test"};
  RuntimeOptions exported_;
  SelfTestSettings settings_;
  SelfTestReference reference_;
  std::string out_;
};

// 5 % of one more than the loss, in both directions: four are within it, six are not.
TEST_F(SelfTestLoss, ADifferenceOfSixPercentFails) {
  ASSERT_TRUE(passes(std::nullopt)) << out_;
  const std::string before = "self-test: loss of the first sample ";
  ASSERT_TRUE(out_.starts_with(before)) << out_;
  const double loss = std::stod(out_.substr(before.size()));
  ASSERT_GT(loss, 1);
  EXPECT_TRUE(passes(loss)) << out_;
  for (const double sign : {-1.0, 1.0}) {
    EXPECT_TRUE(passes(loss + sign * 0.04 * (1 + loss))) << out_;
    EXPECT_FALSE(contains(out_, "they differ")) << out_;
    EXPECT_FALSE(passes(loss + sign * 0.06 * (1 + loss))) << out_;
    EXPECT_TRUE(contains(out_, "they differ, the export is not sound")) << out_;
  }
}

// All logits the same: every token of the vocabulary counts once.
TEST_F(SelfTestLoss, AModelThatKnowsNothingHasTheLossOfAGuess) {
  const auto weights = dir_.path() / "model.safetensors";
  std::string bytes = read_text_file(weights);
  const TensorInfo norm = open_tensor_source(weights)->at("model.norm.weight");
  bytes.replace(norm.file_offset, norm.n_bytes, norm.n_bytes, '\0');
  replace_file(weights, bytes);
  passes(std::nullopt);
  const std::string guess = fmt::format("{:.4f}", std::log(double(toy_chat_config().V)));
  EXPECT_TRUE(contains(out_, "loss of the first sample " + guess)) << out_;
}

}  // namespace
}  // namespace nibble::test
