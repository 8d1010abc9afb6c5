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
  replace_file(file("p.json"), R"({"name": "t", "version": 1, "probes": [{"id": "one",
    "group": "identity", "language": "en", "rules": [{"stops": true}],
    "messages": [{"role": "user", "content": "Who are you"}]}]})");
  replace_file(file("t.tsv"), "who are you?\tme\n");
  const CliResult r = cli({"data", "overlap", "--in", file("t.tsv"), "--probes", file("p.json")});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "in the training data: one")) << r.out;
  EXPECT_TRUE(contains(r.out, "none so long")) << r.out;
}

// One reader of probe files: what check refuses, overlap refuses.
TEST_F(Data, OverlapReadsProbesAsStrictlyAsCheck) {
  replace_file(file("t.tsv"), "who are you?\tme\n");
  const auto refused = [&](const char* text, const char* says) {
    replace_file(file("p.json"), text);
    cli_fails({"data", "overlap", "--in", file("t.tsv"), "--probes", file("p.json")}, 3, says);
  };
  refused("nonsense", "no valid JSON");
  refused("{}", "version");
  refused(R"({"name": "t", "version": 1, "probes": [{"id": "one", "group": "g", "language": "en",
    "rulse": [], "messages": [{"role": "user", "content": "a"}]}]})",
          "did you mean 'rules'");
}

TEST_F(Data, FlagsOfOtherActionsAreRefused) {
  replace_file(file("t.tsv"), "who are you?\tme\n");
  const std::string in = file("t.tsv"), out = file("o.tsv");
  cli_fails({"data", "overlap", "--in", in, "--probes", in, "--out", out}, 2,
            "--out says nothing to data overlap: it belongs to corpus");
  cli_fails({"data", "dedup", "--in", in, "--out", out, "--identity-share", "0.9"}, 2,
            "--identity-share says nothing to data dedup: it belongs to identity");
  cli_fails({"data", "corpus", "--train", in, "--out", file("c")}, 2,
            "--train says nothing to data corpus");
  cli_fails({"data", "split", "--in", in, "--out", out, "--held-out", file("h.tsv"), "--vocab-size",
             "500"},
            2, "belongs to tokenizer");
  cli_fails({"data", "whoami", "--out", out, "--target", "a", "--identity-zh", "b"}, 2, "give one");
  EXPECT_FALSE(fs::exists(out));
  // A run-config may hold what other actions need.
  replace_file(file("c.toml"), "vocab-size = 500\nin = [\"" + in + "\"]\n");
  cli_ok({"data", "dedup", "--run-config", file("c.toml"), "--out", out});
}

TEST_F(Data, LinesKeepTheirFormat) {
  replace_file(file("a.jsonl"), "{\"text\": \"t\"}\n");
  cli_fails({"data", "dedup", "--in", file("a.jsonl"), "--out", file("b.tsv")}, 2,
            "keeps the format");
  cli_fails({"data", "mix", "--in", file("a.jsonl"), "--out", file("b.tsv")}, 2,
            "keeps the format");
  cli_fails({"data", "split", "--in", file("a.jsonl"), "--out", file("b.tsv"), "--held-out",
             file("c.jsonl")},
            2, "keeps the format");
  cli_fails({"data", "split", "--in", file("a.jsonl"), "--out", file("b.jsonl"), "--held-out",
             file("c.tsv")},
            2, "keeps the format");
  cli_fails({"data", "split", "--in", file("a.jsonl"), "--out", file("b.jsonl"), "--held-out",
             file("./b.jsonl")},
            2, "the same file");
  for (const char* name : {"b.tsv", "b.jsonl", "c.tsv", "c.jsonl"}) {
    EXPECT_FALSE(fs::exists(file(name))) << name;
  }
}

TEST_F(Data, AnswersThatCannotBeAreRefused) {
  cli_fails({"data", "whoami", "--target", "a\tb", "--out", file("w.tsv")}, 2, "tab");
  cli_fails({"data", "whoami", "--target", "", "--out", file("w.tsv")}, 2, "empty");
  cli_fails({"data", "identity", "--identity-en", " ", "--out", file("i.jsonl")}, 2,
            "--identity-en is empty");
  cli_fails({"data", "identity", "--identity-zh", "a\nb", "--out", file("i.tsv")}, 2,
            "--identity-zh has a tab or a line end");
  cli_fails({"data", "probes", "--identity-zh", "", "--out", file("p.json")}, 2,
            "--identity-zh is empty");
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

TEST_F(Data, ASplitIsThereWholeOrNotAtAll) {
  replace_file(file("d.tsv"), "a\tb\nc\td\ne\tf\n");
  cli_fails({"data", "split", "--in", file("d.tsv"), "--out", file("s.tsv"), "--held-out",
             file("d.tsv/h.tsv")},
            3, "not a directory");
  EXPECT_FALSE(fs::exists(file("s.tsv"))) << "the same command would be refused";
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 1) << "something is left";
}

TEST_F(Data, NothingIsOverwritten) {
  replace_file(file("x.tsv"), "mine\tmine\n");
  const std::string x = file("x.tsv");
  for (const char* action : {"identity", "whoami", "probes"}) {
    cli_fails({"data", action, "--out", x}, 2, "never overwritten");
  }
  for (const char* action : {"mix", "dedup", "tokenizer"}) {
    cli_fails({"data", action, "--in", x, "--out", x}, 2, "never overwritten");
  }
  cli_fails({"data", "split", "--in", x, "--out", x, "--held-out", file("y.tsv")}, 2,
            "never overwritten");
  EXPECT_EQ(read_text_file(file("x.tsv")), "mine\tmine\n");
}

TEST_F(Data, WhatIsMissingOrUnknownIsNamed) {
  cli_fails({"data"}, 2, "ACTION");
  cli_fails({"data", "corpsu"}, 2, "did you mean corpus");
  cli_fails({"data", "corpus"}, 2, "needs --out");
  cli_fails({"data", "mix", "--out", file("m.tsv")}, 2, "needs --in");
  cli_fails({"data", "overlap", "--in", file("m.tsv")}, 2, "needs --probes");
  cli_fails({"data", "whoami", "--out", file("w.jsonl")}, 2, "writes TSV");
  cli_fails(
      {"data", "identity", "--identity-share", "0.8", "--disambiguation-share", "0.8", "--out",
       file("i.jsonl")},
      2,
      "--identity-share 0.8, --disambiguation-share 0.8 and --conversation-share 0 are together "
      "more than 1");
}

}  // namespace
}  // namespace nibble::test
