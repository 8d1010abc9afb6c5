// SPDX-License-Identifier: MIT
// nibble data, action by action.
#include <algorithm>

#include "apps/cli_run.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Data : public testing::Test {
 protected:
  std::string file(const char* name) const { return dir_.file(name); }
  TemporaryDirectory dir_{"data"};
};

TEST_F(Data, CorpusTokenizerProbesAndOverlap) {
  EXPECT_TRUE(
      contains(cli_ok({"data", "corpus", "--size", "3000", "--out", file("c")}), "5000 documents"));
  const std::string train = file("c/pretrain.jsonl");
  EXPECT_TRUE(contains(cli_ok({"data", "tokenizer", "--corpus", train, "--vocab-size", "600",
                               "--out", file("tokenizer.json")}),
                       "600 tokens"));
  EXPECT_EQ(cli_ok({"tokenize", "--tokenizer", file("tokenizer.json"), "--text", "<|im_end|>"}),
            "576\n");
  cli_ok({"data", "probes", "--out", file("probes.json")});
  const std::string report = cli_ok({"data", "overlap", "--train", train, "--train",
                                     file("c/chat.jsonl"), "--probes", file("probes.json")});
  EXPECT_TRUE(contains(report, "4000 training lines")) << report;
  EXPECT_TRUE(contains(report, "disambiguation")) << report;
}

TEST_F(Data, APromptOfTheProbesInTheTrainingDataFails) {
  write_text_file_atomic(file("p.json"), R"({"probes": [{"id": "one", "group": "identity",
    "messages": [{"role": "user", "content": "Who are you"}]}]})");
  write_text_file_atomic(file("t.tsv"), "who are you?\tme\n");
  const CliResult r = cli({"data", "overlap", "--in", file("t.tsv"), "--probes", file("p.json")});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "in the training data: one")) << r.out;
}

TEST_F(Data, SetsAreMadeMixedAndSplit) {
  cli_ok({"data", "identity", "--size", "50", "--out", file("i.tsv")});
  EXPECT_TRUE(contains(cli_ok({"data", "whoami", "--count", "100", "--out", file("w.tsv")}),
                       "75 natural, 15 control, 10 multilingual"));
  cli_ok({"data", "mix", "--in", file("i.tsv") + ":1", "--in", file("w.tsv") + ":3", "--size",
          "200", "--out", file("m.tsv")});
  const std::string mixed = read_text_file(file("m.tsv"));
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), '\n'), 200);
  cli_ok({"data", "dedup", "--in", file("m.tsv"), "--same", "prompt", "--out", file("d.tsv")});
  cli_ok({"data", "split", "--in", file("d.tsv"), "--held-out-share", "0.3", "--out", file("s.tsv"),
          "--held-out", file("h.tsv")});
  EXPECT_EQ(read_text_file(file("s.tsv")).size() + read_text_file(file("h.tsv")).size(),
            read_text_file(file("d.tsv")).size());
}

TEST_F(Data, NothingIsOverwritten) {
  write_text_file_atomic(file("x.tsv"), "mine\tmine\n");
  for (const char* action :
       {"identity", "whoami", "mix", "dedup", "split", "probes", "tokenizer"}) {
    cli_fails({"data", action, "--in", file("x.tsv"), "--out", file("x.tsv"), "--held-out",
               file("y.tsv")},
              2, "never overwritten");
  }
  EXPECT_EQ(read_text_file(file("x.tsv")), "mine\tmine\n");
}

TEST_F(Data, WhatIsMissingOrUnknownIsNamed) {
  cli_fails({"data"}, 2, "ACTION");
  cli_fails({"data", "corpsu"}, 2, "did you mean corpus");
  cli_fails({"data", "corpus"}, 2, "needs --out");
  cli_fails({"data", "mix", "--out", file("m.tsv")}, 2, "needs --in");
  cli_fails({"data", "overlap", "--in", file("m.tsv")}, 2, "needs --probes");
  cli_fails({"data", "whoami", "--out", file("w.jsonl")}, 2, "writes TSV");
  cli_fails({"data", "identity", "--identity-share", "0.8", "--disambiguation-share", "0.8",
             "--out", file("i.jsonl")},
            2, "shares");
}

}  // namespace
}  // namespace nibble::test
