// SPDX-License-Identifier: MIT
// How far the loss of an exported file may be from the trainer's.
#include <gtest/gtest.h>

#include <sstream>

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
    flags_.max_tokens = 1;
    reference_.batch = random_batch({12}, toy_chat_config().V, 3);
    reference_.prompt_ids = {1, 2, 3};
  }
  ExitCode run(std::optional<double> loss) {
    reference_.loss = loss;
    std::ostringstream out;
    const ExitCode code = self_test(flags_, exported_, reference_, TemplateStyle::qwen3, out);
    out_ = out.str();
    return code;
  }

  TemporaryDirectory dir_{"self-test"};
  RuntimeOptions exported_;
  SelfTestFlags flags_;
  SelfTestReference reference_;
  std::string out_;
};

// 5 % of one more than the loss, in both directions: four are within it, six are not.
TEST_F(SelfTestLoss, ADifferenceOfSixPercentFails) {
  ASSERT_EQ(run(std::nullopt), ExitCode::ok) << out_;
  const std::string before = "self-test: loss of the first sample ";
  ASSERT_TRUE(out_.starts_with(before)) << out_;
  const double loss = std::stod(out_.substr(before.size()));
  ASSERT_GT(loss, 1);
  EXPECT_EQ(run(loss), ExitCode::ok) << out_;
  for (const double sign : {-1.0, 1.0}) {
    EXPECT_EQ(run(loss + sign * 0.04 * (1 + loss)), ExitCode::ok) << out_;
    EXPECT_FALSE(contains(out_, "they differ")) << out_;
    EXPECT_EQ(run(loss + sign * 0.06 * (1 + loss)), ExitCode::check_failed) << out_;
    EXPECT_TRUE(contains(out_, "they differ, the export is not sound")) << out_;
  }
}

}  // namespace
}  // namespace nibble::test
