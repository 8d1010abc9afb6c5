// SPDX-License-Identifier: MIT
// nibble train with rows that are kept: --keep, --teacher, --keep-weight, --keep-share.
#include <cmath>

#include "apps/train_support.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class KeepTest : public TrainingTest {
 protected:
  void SetUp() override {
    text_ = write("text.txt",
                  "A nibble is half a byte.\nIt has four bits.\n\nA byte has eight of them, and a "
                  "word has two bytes or more.\n");
  }
  // The JSONL files a teacher wrote into a folder.
  static std::vector<fs::path> written(const fs::path& folder) {
    std::vector<fs::path> files;
    if (!fs::exists(folder)) return files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("kept-")) files.push_back(entry.path());
    }
    return files;
  }
  std::string text_;
};

TEST_F(KeepTest, BothLossesAreRecorded) {
  const fs::path run = trained({{"--keep", text_},
                                {"--keep-weight", "3"},
                                {"--batch-size", "4"},
                                {"--seq-len", "24"},
                                {"--truncate", "true"},
                                {"--steps", "3"}});
  const auto lines = read_jsonl(run / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  // The model is its own teacher: nothing at the first step, something afterwards.
  EXPECT_EQ(lines[0].at("kept_loss").get<double>(), 0);
  for (const json& line : lines) {
    const double taught = line.at("taught_loss"), kept = line.at("kept_loss");
    EXPECT_NEAR(line.at("loss").get<double>(), taught + 3 * kept, 1e-9);
    EXPECT_GT(line.at("kept_tokens").get<int64_t>(), 0);
  }
  EXPECT_GT(lines[2].at("kept_loss").get<double>(), 0);
  const CliResult shown = cli({"runs", "show", run.string(), "--runs-dir", file("runs")});
  EXPECT_TRUE(contains(shown.out, "kept")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "taught rows")) << shown.out;
  EXPECT_TRUE(contains(read_text_file(run / "report.html"), "nats a token on kept rows"));
  EXPECT_TRUE(fs::exists(run / "kept.svg"));
  const json record = json::parse(read_text_file(run / "run.json"));
  bool found = false;
  for (const json& f : record["files"]) found |= f["role"] == "kept-data";
  EXPECT_TRUE(found) << record["files"].dump(1);
  EXPECT_GT(record["metrics"]["kept_tokens"].get<int64_t>(), 0);
}

TEST_F(KeepTest, TheShareCountsSamples) {
  const auto kept_of = [&](const char* share, const char* batch) {
    return column<int64_t>("kept_tokens", {{"--keep", text_},
                                           {"--keep-share", share},
                                           {"--batch-size", batch},
                                           {"--seq-len", "8"},
                                           {"--truncate", "true"},
                                           {"--steps", "4"}});
  };
  for (const int64_t tokens : kept_of("0.75", "4")) {
    EXPECT_GT(tokens, 16);  // three windows of 8, of which one may be the short last one
    EXPECT_LE(tokens, 24);
  }
  // A sample a step: taught and kept in turn. A step without kept rows says 0 of them once there
  // were some.
  const auto turns = kept_of("0.5", "1");
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_GT(turns[0], 0);
  EXPECT_EQ(turns[1], 0);
  EXPECT_GT(turns[2], 0);
}

TEST_F(KeepTest, KeptRowsHoldTheModel) {
  const Options usual = {{"--keep", text_},      {"--batch-size", "4"}, {"--seq-len", "24"},
                         {"--truncate", "true"}, {"--steps", "12"},     {"--lr", "2e-3"},
                         {"--recipe", "bf16"}};
  Options weak = usual, strong = usual;
  weak["--keep-weight"] = "1e-6";
  strong["--keep-weight"] = "50";
  const double moved = column<double>("kept_loss", weak).back();
  const double held = column<double>("kept_loss", strong).back();
  EXPECT_GT(moved, 0);
  EXPECT_LT(held, 0.5 * moved);
}

TEST_F(KeepTest, ATeacherAndNothingTaught) {
  Config other = toy_chat_config();
  other.L = 2;
  write_toy_directory(file("other"), other);
  const Options distil = {{"--train-data", kLeaveOut},
                          {"--keep", text_},
                          {"--seq-len", "24"},
                          {"--model", dat()},
                          {"--steps", "8"},
                          {"--batch-size", "2"},
                          {"--lr", "3e-3"}};
  Options with = distil;
  with["--teacher"] = file("other");
  const fs::path run = trained(with);
  const auto lines = read_jsonl(run / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_GT(lines[0].at("kept_loss").get<double>(), 0.01);
  EXPECT_TRUE(lines[0].at("taught_loss").is_null());
  EXPECT_EQ(lines[0].at("loss"), lines[0].at("kept_loss"));
  EXPECT_LT(lines[7].at("kept_loss").get<double>(), lines[0].at("kept_loss").get<double>());
  EXPECT_TRUE(fs::exists(run / "model.dat"));
  bool found = false;
  const json record = json::parse(read_text_file(run / "run.json"));
  for (const json& f : record["files"]) found |= f["role"] == "teacher";
  EXPECT_TRUE(found);
  // Its own start: nothing to learn, nothing changes, and the exported file is the one it read.
  EXPECT_TRUE(exported(distil) == file_bytes(dat()));
}

TEST_F(KeepTest, PromptsAreAnsweredOnceAndUsedAgain) {
  const std::string prompts = write("prompts.jsonl",
                                    "{\"prompt\": \"hello\"}\n{\"messages\": [{\"role\": \"user\", "
                                    "\"content\": \"what is a nibble\"}]}\n");
  const Options how = {{"--keep", prompts},
                       {"--batch-size", "2"},
                       {"--save-every-steps", "2"},
                       {"--truncate", "true"},
                       {"--checkpoint-dir", file("saved")},
                       {"--steps", "2"}};
  trained(how);
  const auto files = written(file("saved"));
  ASSERT_EQ(files.size(), 1u);
  const auto lines = read_jsonl(files[0]);
  ASSERT_FALSE(lines.empty());
  for (const json& line : lines) EXPECT_EQ(line["messages"].back()["role"], "assistant");
  const auto made = fs::last_write_time(files[0]);
  Options on = how;
  on["--resume"] = "true";
  on["--steps"] = "4";
  const std::string resumed = exported(on);
  EXPECT_EQ(written(file("saved")), files);
  EXPECT_EQ(fs::last_write_time(files[0]), made);
  // The bits of a run that was not interrupted.
  Options whole = how;
  whole["--steps"] = "4";
  whole["--checkpoint-dir"] = file("whole");
  EXPECT_TRUE(resumed == exported(whole));
  EXPECT_EQ(written(file("whole"))[0].filename(), files[0].filename());
  EXPECT_TRUE(file_bytes(written(file("whole"))[0]) == file_bytes(files[0]));
}

TEST_F(KeepTest, TheModelWritesItsOwnText) {
  const fs::path run = trained({{"--keep", "self:300"},
                                {"--train-data", kLeaveOut},
                                {"--seq-len", "48"},
                                {"--batch-size", "2"},
                                {"--steps", "2"}});
  const auto files = written(run / "checkpoints");
  ASSERT_EQ(files.size(), 1u);
  const auto lines = read_jsonl(files[0]);
  ASSERT_GT(lines.size(), 3u);
  for (const json& line : lines) EXPECT_FALSE(line["text"].get<std::string>().empty());
  const json record = json::parse(read_text_file(run / "run.json"));
  std::string hash;
  for (const json& f : record["files"]) {
    if (f["role"] == "kept-data") hash = f["sha256"];
  }
  EXPECT_EQ(hash.size(), 64u);
}

// Conversations, in files of every kind, and several sources that take turns.
TEST_F(KeepTest, SourcesOfEveryKind) {
  const std::string chats =
      write("chats.jsonl",
            "{\"prompt\": \"a\", \"target\": \"b\"}\n{\"prompt\": \"c\", \"target\": \"d\"}\n");
  const std::string texts = write("texts.jsonl", "{\"text\": \"four bits and four bits\"}\n");
  std::vector<std::string> args = train_arguments(
      {{"--batch-size", "8"}, {"--seq-len", "32"}, {"--truncate", "true"}, {"--export", "false"}});
  for (const std::string& source : {text_, chats, texts, pairs()}) {
    args.insert(args.end(), {"--keep", source});
  }
  const CliResult r = Child(dir_.path(), args).wait();
  EXPECT_EQ(r.code, 0) << r.err;
  for (const std::string& source : {text_, chats, texts, pairs()}) {
    EXPECT_TRUE(contains(r.err, "kept, " + source)) << r.err;
  }
}

TEST_F(KeepTest, WhatDoesNotGoTogetherIsRefused) {
  refused({{"--train-data", kLeaveOut}}, 2, "nothing to train on");
  refused({{"--teacher", model()}}, 2, "name some with --keep");
  refused({{"--keep-share", "0.5"}}, 2, "name some with --keep");
  refused({{"--keep", text_}, {"--keep-share", "1"}}, 2, "between 0 and 1");
  refused({{"--keep", text_}, {"--keep-share", "0.5"}, {"--train-data", kLeaveOut}}, 2,
          "every row is a kept one");
  refused({{"--keep", text_}, {"--loss", "scalar"}}, 2, "--loss scalar");
  refused({{"--keep", "self:many"}}, 2, "self:50000");
  refused({{"--keep", file("text.doc")}}, 2, "does not tell what it holds");
  refused({{"--keep", write("mixed.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n")}}, 3,
          "mixed.jsonl:2");
  EXPECT_FALSE(fs::exists(file("runs"))) << "nothing began, and nothing is left behind";
  Config c = toy_chat_config();
  c.V += 64;
  write_toy_directory(file("wide"), c);
  refused({{"--keep", text_}, {"--teacher", file("wide")}}, 2, "the same vocabulary");
}

TEST_F(KeepTest, ThePlanCountsTheTeacher) {
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "plan",      "--model", model(),  "--seq-len", "64",    "--batch-size",  "4",
        "--threads", "1",       "--json", "--recipe",  "nvfp4", "--memory-mode", "resident"};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out)["plans"][0]["arenas"];
  };
  const json without = plan({}), with = plan({"--keep", text_});
  EXPECT_FALSE(without.contains("teacher"));
  EXPECT_GT(with["teacher"].get<int64_t>(), 0);
  EXPECT_GT(with["teacher embed"].get<int64_t>(), 0);
  EXPECT_GT(with["activations"].get<int64_t>(), without["activations"].get<int64_t>());
  const json file = plan({"--keep", text_, "--teacher", model()});
  EXPECT_GT(file["teacher"].get<int64_t>(), with["teacher"].get<int64_t>());
  EXPECT_FALSE(file.contains("teacher embed"));
}

// What the process has in memory at most is what was planned, the teacher's copy included.
TEST_F(KeepTest, ProcessMemoryIsAsPlanned) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  write_large_model("large");
  std::string words;
  for (int i = 0; i < 40; ++i) words += "four bits ";
  const std::string pair = write("long.tsv", "hello\t" + words + "\n");
  const std::string text = write("long.txt", words + words + "\n");
  const Options how = {{"--model", file("large")}, {"--seq-len", "32"},
                       {"--batch-size", "2"},      {"--threads", "2"},
                       {"--keep", text},           {"--memory-mode", "resident"},
                       {"--recompute", "off"}};
  Options planned = how;
  planned["--json"] = "true";
  const json plan = json::parse(cli(arguments("plan", planned, {})).out)["plans"][0];
  const auto total = double(plan["total_bytes"].get<uint64_t>());
  ASSERT_GT(plan["arenas"]["teacher embed"].get<double>(), 3e8);
  if (!plan["fits"].get<bool>()) GTEST_SKIP() << "two GiB of memory are needed";
  Options run = how;
  run["--train-data"] = pair;
  run["--truncate"] = "true";
  run["--export"] = "false";
  run["--vram-report"] = file("large.json");
  const CliResult r = Child(dir_.path(), train_arguments(run)).wait();
  ASSERT_EQ(r.code, 0) << r.err;
  const json report = json::parse(read_text_file(file("large.json")));
  EXPECT_NEAR(report["PeakProcRssMiB"].get<double>() * (1 << 20) / total, 1, 0.03);
}

}  // namespace
}  // namespace nibble::test
