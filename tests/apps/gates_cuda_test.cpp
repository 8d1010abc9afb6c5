// SPDX-License-Identifier: MIT
// Probes and gates on a GPU: asking changes nothing, in any memory mode. Skipped where there is
// none.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/train_support.h"
#include "backends/cuda/cuda_backend.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class GatesOnAGpu : public TrainingTest {
 protected:
  void SetUp() override {
    const CudaSupport support = cuda_support();
    if (!support.usable()) GTEST_SKIP() << "no GPU: " << support.problem;
  }
  // Nine questions, more than one of a kind: several sequences take part in a step.
  std::string probes() const {
    Json j = {{"name", "gpu"}, {"version", 1}, {"probes", Json::array()}};
    for (int i = 0; i < 9; ++i) {
      j["probes"].push_back(
          {{"id", "p" + std::to_string(i)},
           {"group", i % 2 ? "retention" : "identity"},
           {"language", "en"},
           {"max_tokens", 12},
           {"messages",
            Json::array({{{"role", "user"}, {"content", std::string(size_t(i + 1), 'a')}}})},
           {"rules", Json::array({{{"contains", "nibble"}}})}});
    }
    return write("probes.json", j.dump());
  }
};

TEST_F(GatesOnAGpu, TheWeightsAreTheSameWithAndWithout) {
  for (const char* mode : {"resident", "release", "remake", "host"}) {
    SCOPED_TRACE(mode);
    Options given = {{"--device", "cuda"},     {"--memory-mode", mode}, {"--steps", "12"},
                     {"--threads", kLeaveOut}, {"--probes", probes()},  {"--probe-every", "3"}};
    const std::string gated = exported(given);
    const auto lines =
        read_jsonl(dir_.path() / "runs" / ("run" + std::to_string(runs_)) / "probes.jsonl");
    EXPECT_EQ(lines.size(), 5u);
    for (const auto& line : lines) {
      EXPECT_EQ(line["signs"]["not_finite"], 0) << line.dump();
      EXPECT_EQ(line["scores"]["identity"]["total"], 5);
    }
    given["--probes"] = given["--probe-every"] = kLeaveOut;
    EXPECT_TRUE(gated == exported(given));
  }
}

TEST_F(GatesOnAGpu, CheckAsksOnBothRecipes) {
  for (const char* recipe : {"bf16", "nvfp4"}) {
    const CliResult r = cli({"check", "--model", model(), "--device", "cuda", "--recipe", recipe,
                             "--probes", probes(), "--show", "none"});
    EXPECT_TRUE(contains(r.out, " of 9 passed")) << r.out << r.err;
    EXPECT_FALSE(contains(r.out, "not-finite")) << r.out;
  }
}

}  // namespace
}  // namespace nibble::test
