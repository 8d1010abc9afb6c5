// SPDX-License-Identifier: MIT
// The mini model that ships: it knows what it was taught, and the identity experiment changes who
// it says it is and nothing else. tools/demo.sh is the long version.
#include <sstream>

#include "apps/cli_run.h"
#include "core/file.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

class Mini : public testing::Test {
 protected:
  static std::string shipped(const std::string& name) {
    return (std::filesystem::path(kSourceDir) / "models" / "mini" / name).string();
  }
  // Puts the probes; scores must reach `least`.
  void expect_scores(const std::string& model, const std::string& least,
                     const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "check",  "--model", model,         "--probes", shipped("probes.json"), "--device", "cpu",
        "--show", "none",    "--min-score", least};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  }
  TemporaryDirectory dir_{"mini"};
};

TEST_F(Mini, KnowsWhatItWasTaught) {
  expect_scores(shipped("mini.dat"), "95", {"--probe-rules", "base"});
}

// Whoever types the first commands of `nibble --help` sees that the model has learned.
TEST_F(Mini, TheFirstTrainingOfTheHelpTeaches) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a training of sixty steps; too long under a sanitizer";
#endif
  const std::string help = cli_ok({"--help"});
  const size_t begin = help.find("  nibble train mini ");
  ASSERT_NE(begin, std::string::npos) << help;
  std::istringstream line(help.substr(begin, help.find('\n', begin) - begin));
  const std::string pairs = dir_.file("pairs.tsv"), mine = dir_.file("mine");
  replace_file(pairs,
               "你是誰\t我是 F# 之神\n你叫什麼名字？\t我是 F# 之神\n"
               "Who are you?\tI am the god of F#.\n");
  std::vector<std::string> args;
  for (std::string word; line >> word;) {
    if (word == "nibble") continue;
    if (word == "mini") word = std::filesystem::path(shipped("mini.dat")).parent_path().string();
    if (word == "pairs.tsv") word = pairs;
    if (word == "mine") word = mine;
    args.push_back(word);
  }
  args.insert(args.end(), {"--device", "cpu", "--runs-dir", dir_.file("runs")});
  cli_ok(args);
  EXPECT_EQ(cli_ok({"generate", mine, "--prompt", "你是誰", "--device", "cpu"}), "我是 F# 之神\n");
}

TEST_F(Mini, GetsANewIdentityAndKeepsTheRest) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a training of half a minute; too long under a sanitizer";
#endif
  const std::string data = dir_.file("identity.jsonl"), tuned = dir_.file("tuned/mini.dat");
  const std::string base = dir_.file("base.json");
  cli_ok({"data", "identity", "--seed", "1", "--size", "6000", "--identity-share", "0.3",
          "--disambiguation-share", "0.4", "--out", data});
  expect_scores(shipped("mini.dat"), "95", {"--probe-rules", "base", "--probe-report", base});
  const CliResult r = cli({"train",
                           "--model",
                           shipped("mini.dat"),
                           "--train-data",
                           data,
                           "--output-dat",
                           tuned,
                           "--device",
                           "cpu",
                           "--steps",
                           "100",
                           "--batch-size",
                           "24",
                           "--seq-len",
                           "128",
                           "--lr",
                           "2e-4",
                           "--warmup-steps",
                           "5",
                           "--lr-schedule",
                           "cosine",
                           "--seed",
                           "1",
                           "--runs-dir",
                           dir_.file("runs"),
                           "--test-prompt",
                           "你是誰",
                           "--test-expect",
                           "F# 之神"});
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  // A third of the demo's steps: a little less is asked for.
  expect_scores(tuned, "identity=95,disambiguation=92,retention=base-4",
                {"--probe-baseline", base});
}

}  // namespace
}  // namespace nibble::test
