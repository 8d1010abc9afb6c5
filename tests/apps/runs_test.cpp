// SPDX-License-Identifier: MIT
// nibble runs: running, finished, failed and dead ones; tables, comparisons, the log, the trash.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "apps/cli_run.h"
#include "core/text/columns.h"
#include "runlog/run_folder.h"
#include "runlog/run_recorder.h"
#include "runlog/run_view.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

StepRecord record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 4.0 / double(step);
  r.smoothed_loss = 5.0 / double(step);
  r.lr = 2e-5;
  r.grad_norm = 0.75;
  r.tokens = 100;
  r.seconds = 0.25;
  r.rss_bytes = uint64_t(3) << 30;
  return r;
}

class RunsTest : public testing::Test {
 protected:
  fs::path folder(const std::string& name) { return create_run_folder(dir_.path(), name); }
  CliResult watch(std::vector<std::string> args = {}) {
    args.insert(args.begin(), {"runs", "watch"});
    args.insert(args.end(), {"--runs-dir", dir_.path().string()});
    return cli(args);
  }
  TemporaryDirectory dir_{"runs"};
};

TEST_F(RunsTest, ARunningOneOnce) {
  RunRecorder recorder(folder("mine"), "train", "", 8);
  for (int64_t step = 1; step <= 2; ++step) recorder.step(record(step));
  const CliResult r = watch({"mine", "--once"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const std::string& part :
       {std::string("run       ") + recorder.directory().string(),
        fmt::format("state     running (pid {})\n", ::getpid()),
        std::string("step      2/8  [######------------------] 25 %\n"),
        std::string("loss      2.0000  smoothed 2.5000\n"),
        std::string("rate      lr 2e-05  |g| 0.75\n"), std::string("speed     400.0 tokens/s\n"),
        std::string("memory    3.00 GiB\n"), std::string("curve     █▁\n"),
        std::string("last      step      1  loss 4.0000"),
        std::string("          step      2  loss 2.0000"), std::string(" left\n")}) {
    EXPECT_TRUE(contains(r.out, part)) << part << " in\n" << r.out;
  }
  EXPECT_FALSE(contains(r.out, "\x1b"));
  EXPECT_FALSE(contains(r.out, "try it"));
}

TEST_F(RunsTest, UntilItEnds) {
  const fs::path run = folder("mine");
  RunRecorder recorder(run, "train", "", 2);
  std::thread worker([&] {
    for (int64_t step = 1; step <= 2; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      recorder.step(record(step));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    recorder.finish(RunState::finished);
  });
  const CliResult r = watch({"--interval", "0.05"});
  worker.join();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.out, "step 1/2  loss 4.0000  smoothed 5.0000  lr 2e-05")) << r.out;
  EXPECT_TRUE(contains(r.out, "step 2/2  loss 2.0000")) << r.out;
  EXPECT_TRUE(contains(r.out, "state     finished\n")) << r.out;
  EXPECT_TRUE(contains(r.out, "100 %")) << r.out;
}

TEST_F(RunsTest, FailedAndInterrupted) {
  {
    RunRecorder failed(folder("failed"), "train", "", 2);
    failed.finish(RunState::failed, "the disk is full");
    RunRecorder interrupted(folder("interrupted"), "train", "", 2);
    interrupted.finish(RunState::interrupted);
  }
  const CliResult f = watch({"failed"});
  EXPECT_EQ(f.code, 1);
  EXPECT_TRUE(contains(f.out, "state     failed: the disk is full\n")) << f.out;
  const CliResult i = watch({"interrupted"});
  EXPECT_EQ(i.code, 1);
  EXPECT_TRUE(contains(i.out, "state     interrupted\n")) << i.out;
}

TEST_F(RunsTest, ADeadProcessIsNoticed) {
  const fs::path run = folder("dead");
  const pid_t pid = ::fork();
  if (pid == 0) {  // as a crash: no destructor, no last word
    RunRecorder recorder(run, "train", "", 10);
    for (int64_t step = 1; step <= 4; ++step) recorder.step(record(step));
    std::ofstream(run / "metrics.jsonl", std::ios::app) << "{\"step\":5,\"lo";
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(read_status(run).state, RunState::running);
  const CliResult r = watch();
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "state     the process has gone; last step 4\n")) << r.out;
  EXPECT_TRUE(contains(r.out, "step      4/10 ")) << r.out;
}

TEST_F(RunsTest, LatestIsTheOneStartedLast) {
  for (const char* name : {"z", "a"}) {
    RunRecorder recorder(folder(name), "train", "", 2);
    recorder.finish(RunState::finished);
  }
  fs::create_directory(dir_.path() / "zz");
  replace_file(dir_.path() / "zzz", "a file");
  EXPECT_EQ(list_runs(dir_.path()), (std::vector{dir_.path() / "z", dir_.path() / "a"}));
  EXPECT_EQ(find_run(dir_.path(), "latest"), dir_.path() / "a");
  EXPECT_EQ(find_run(dir_.path(), "z"), dir_.path() / "z");
  EXPECT_EQ(find_run("nowhere", (dir_.path() / "z").string()), dir_.path() / "z");
  EXPECT_THROW(find_run(dir_.path(), "zz"), FormatError);
  EXPECT_THROW(find_run(dir_.path() / "none", "latest"), FormatError);
}

TEST_F(RunsTest, HowToTryTheWeights) {
  const fs::path run = folder("mine");
  RunRecorder recorder(run, "train", "", 2);
  const fs::path model = dir_.path() / "a model";
  recorder.checkpoint(dir_.path() / "step-1", model);
  EXPECT_FALSE(contains(watch({"--once"}).out, "try it"));  // it does not exist
  fs::create_directory(model);
  const std::string before = watch({"--once"}).out;
  EXPECT_TRUE(contains(before, "try it    nibble chat --model '" + model.string() + "'\n"));
  EXPECT_TRUE(contains(before, "saved     " + (dir_.path() / "step-1").string() + "\n"));
  // What was exported counts for more than a checkpoint.
  replace_file(dir_.path() / "out.dat", "x");
  recorder.exported(dir_.path() / "out.dat");
  EXPECT_TRUE(contains(watch({"--once"}).out,
                       "try it    nibble chat --model " + dir_.file("out.dat") + "\n"));
}

// Three runs of different fates; "gone" was killed.
class RunLogTest : public RunsTest {
 protected:
  void SetUp() override {
    {
      RunRecorder r(folder("good"), "train", "command = \"train\"\nlr = 0.5\nseed = 1\n", 2);
      replace_file(dir_.path() / "pairs.tsv", "x");
      r.input("train-data", dir_.path() / "pairs.tsv");
      for (int64_t step = 1; step <= 2; ++step) r.step(record(step));
      r.held_out(2, 1.25);
      std::ofstream(r.directory() / "probes.jsonl")
          << "{\"step\":2,\"scores\":{\"identity\":{\"passed\":3,\"total\":4}}}\n";
      std::ofstream(r.directory() / "replies.jsonl")
          << R"({"step":2,"id":"a","group":"identity","prompt":"a|b","reply":"*x*\u001b","passed":true})"
          << "\n";
      r.finish(RunState::finished);
      RunRecorder bad(folder("bad"), "pretrain", "command = \"pretrain\"\nlr = 0.25\nseed = 1\n",
                      4);
      bad.step(record(1));
      bad.finish(RunState::failed, "it broke");
    }
    const fs::path gone = folder("gone");
    const pid_t pid = ::fork();
    if (pid == 0) {
      RunRecorder recorder(gone, "train", "", 10);
      ::_exit(0);
    }
    ::waitpid(pid, nullptr, 0);
  }
  CliResult runs(std::vector<std::string> args) {
    args.insert(args.begin(), "runs");
    args.insert(args.end(), {"--runs-dir", dir_.path().string()});
    return cli(args);
  }
  std::string runs_ok(const std::vector<std::string>& args) {
    const CliResult r = runs(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  }
  nlohmann::json runs_json(std::vector<std::string> args) {
    args.push_back("--json");
    return nlohmann::json::parse(runs_ok(args));
  }
};

TEST_F(RunLogTest, List) {
  const std::string table = runs_ok({"list"});
  EXPECT_TRUE(contains(table, "run   state"));
  EXPECT_TRUE(std::regex_search(
      table, std::regex("\ngood +finished +train .* 2/2 +2.0000 +1.2500 +identity 75 %\n")))
      << table;
  EXPECT_TRUE(std::regex_search(table, std::regex("\nbad +failed +pretrain .* 1/4 "))) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex("\ngone +gone +train .* 0/10 "))) << table;
  EXPECT_LT(table.find("\ngood"), table.find("\nbad"));  // the newest last
  EXPECT_LT(table.find("\nbad"), table.find("\ngone"));

  const auto names = [&](std::vector<std::string> filter) {
    filter.insert(filter.begin(), "list");
    std::vector<std::string> list;
    for (const auto& r : runs_json(filter)) list.push_back(r["run"].get<std::string>());
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), (Names{"good", "bad", "gone"}));
  EXPECT_EQ(names({"--state", "gone"}), Names{"gone"});
  EXPECT_EQ(names({"--of", "pretrain"}), Names{"bad"});
  EXPECT_EQ(names({"--name", "oo"}), Names{"good"});
  EXPECT_EQ(names({"--last", "2"}), (Names{"bad", "gone"}));
  EXPECT_EQ(names({"--last", "1", "--of", "pretrain"}), Names{"bad"});
  EXPECT_TRUE(contains(runs_ok({"list", "--name", "nothing"}), "no such run"));
}

TEST_F(RunLogTest, Show) {
  const std::string text = runs_ok({"show", "good"});
  for (const char* part : {"state       finished\n", "steps       2/2\n", "held out    1.2500",
                           "identity         3/4 (75 %)", "setting     lr = 0.5\n",
                           "reply       ok   [identity] a|b -> *x* \n"}) {
    EXPECT_TRUE(contains(text, part)) << part << " in\n" << text;
  }
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(runs_ok({"show", "bad"}), "state       failed: it broke (exit code 1)\n"));
  const auto j = runs_json({"show", "good"});
  EXPECT_EQ(j["state"], "finished");
  EXPECT_EQ(j["replies"][0]["last"]["reply"], "*x*\x1b");
  EXPECT_TRUE(j["lineage"]["ancestors"].empty());
  EXPECT_EQ(runs_json({"show"})["state"], "gone");  // the latest
  EXPECT_EQ(runs_json({"lineage", "good"})["children"].size(), 0u);
  EXPECT_EQ(runs_ok({"lineage", "good"}), "good (this run)\n");
}

TEST_F(RunLogTest, Compare) {
  const std::string text = runs_ok({"compare", "good", "bad"});
  EXPECT_TRUE(std::regex_search(text, std::regex("results +good +bad\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("  smoothed loss +2.5000 +5.0000\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("  lr +0.5 +0.25\n"))) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("  train-data +2d711642b726 +-\n"))) << text;
  EXPECT_FALSE(contains(text, "seed"));  // it is the same
  const std::string svg = read_text_file(dir_.path() / "compare.svg");
  EXPECT_TRUE(contains(svg, ">good</text>") && contains(svg, ">bad</text>"));
  const auto j = runs_json({"compare", "good", "bad", "--out", dir_.file("other.svg")});
  EXPECT_EQ(j["settings_that_differ"]["lr"]["bad"], "0.25");
  EXPECT_TRUE(fs::exists(dir_.path() / "other.svg"));
  cli_fails({"runs", "compare", "good", "--runs-dir", dir_.path().string()}, 2, "two runs or more");
}

TEST_F(RunLogTest, CompareReplacesNoChart) {
  const auto compare = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"runs", "compare", "good", "bad"});
    more.insert(more.end(), {"--runs-dir", dir_.path().string()});
    return more;
  };
  const fs::path mine = dir_.path() / "mine.txt";
  replace_file(mine, "mine");
  cli_fails(compare({"--out", mine.string()}), 2, "exists: choose another name, or use --force");
  EXPECT_EQ(read_text_file(mine), "mine");
  EXPECT_EQ(cli(compare({"--out", mine.string(), "--force"})).code, 0);
  EXPECT_TRUE(contains(read_text_file(mine), "<svg"));
  cli_fails(compare({"--force"}), 2, "--out");

  // Without --out: another chart gets another name, the same one does not.
  runs_ok({"compare", "good", "bad"});
  const std::string first = read_text_file(dir_.path() / "compare.svg");
  EXPECT_TRUE(contains(runs_ok({"compare", "bad", "good"}), "compare-2.svg\n"));
  EXPECT_TRUE(contains(runs_ok({"compare", "good", "bad"}), "compare.svg\n"));
  EXPECT_EQ(read_text_file(dir_.path() / "compare.svg"), first);
  EXPECT_FALSE(fs::exists(dir_.path() / "compare-3.svg"));
}

TEST_F(RunLogTest, PlotAndReport) {
  for (const char* file : {"loss.svg", "gates.svg", "report.html"}) {
    fs::remove(dir_.path() / "good" / file);
  }
  const std::string made = runs_ok({"plot", "good"});
  for (const char* file : {"loss.svg", "gates.svg", "lr.svg", "report.html"}) {
    EXPECT_TRUE(fs::exists(dir_.path() / "good" / file)) << file;
    EXPECT_TRUE(contains(made, (dir_.path() / "good" / file).string() + "\n"));
  }
  EXPECT_FALSE(fs::exists(dir_.path() / "gone" / "report.html"));
  EXPECT_EQ(runs_ok({"report"}), (dir_.path() / "gone" / "report.html").string() + "\n");
  EXPECT_TRUE(contains(read_text_file(dir_.path() / "gone" / "report.html"), ">gone</span>"));
}

TEST_F(RunLogTest, Export) {
  const std::string log = runs_ok({"export", "--markdown"});
  EXPECT_TRUE(log.starts_with("# Runs\n\n## 20"));
  for (const char* part : {" good\n", " bad\n", " gone\n", "- **State**: failed: it broke (exit",
                           "| identity | 3/4 | 3/4 |", "| a\\|b | \\*x\\*", "lr 0.5, seed 1"}) {
    EXPECT_TRUE(contains(log, part)) << part << " in\n" << log;
  }
  EXPECT_TRUE(contains(runs_ok({"export", "--markdown", "--out", dir_.file("log.md")}), "3 runs"));
  EXPECT_EQ(read_text_file(dir_.path() / "log.md"), log);
  EXPECT_EQ(runs({"export", "--markdown", "--out", dir_.file("log.md")}).code, 2);
  runs_ok({"export", "--markdown", "--out", dir_.file("log.md"), "--force", "--state", "failed"});
  EXPECT_FALSE(contains(read_text_file(dir_.path() / "log.md"), " good\n"));
  EXPECT_EQ(runs({"export"}).code, 2);
  EXPECT_EQ(runs_json({"export", "good"})[0]["run"], "good");
}

TEST_F(RunLogTest, PruneMovesAndWritesDown) {
  EXPECT_EQ(runs({"prune"}).code, 2);  // which?
  const std::string said = runs_ok({"prune", "--failed"});
  EXPECT_TRUE(contains(said, "bad\ngone\n2 runs would be moved to")) << said;
  EXPECT_TRUE(fs::exists(dir_.path() / "bad"));  // not without --yes
  EXPECT_FALSE(fs::exists(dir_.path() / ".trash"));

  EXPECT_TRUE(contains(runs_ok({"pin", "bad"}), "bad is pinned"));
  EXPECT_TRUE(contains(runs_ok({"list"}), "\n*bad "));
  cli_fails({"runs", "prune", "bad", "--yes", "--runs-dir", dir_.path().string()}, 2, "is pinned");
  const auto moved = runs_json({"prune", "--failed", "--yes"});
  EXPECT_EQ(moved["runs"], nlohmann::json{"gone"});
  const fs::path trash = moved["trash"].get<std::string>();
  EXPECT_EQ(trash.parent_path(), dir_.path() / ".trash");
  EXPECT_TRUE(fs::exists(trash / "gone" / "status.json"));
  EXPECT_FALSE(fs::exists(dir_.path() / "gone"));
  const auto line = nlohmann::json::parse(read_text_file(dir_.path() / "prune.jsonl"));
  EXPECT_EQ(line["run"], "gone");
  EXPECT_EQ(line["reason"], "--failed");
  EXPECT_EQ(line["to"], (trash / "gone").string());

  runs_ok({"unpin", "bad"});
  EXPECT_TRUE(contains(runs_ok({"prune", "bad", "--yes"}), "bad\n1 run moved to"));
  EXPECT_TRUE(contains(runs_ok({"prune", "--older-than", "1"}), "nothing to prune"));
  EXPECT_TRUE(contains(runs_ok({"prune", "--keep", "1"}), "nothing to prune"));
  EXPECT_TRUE(contains(runs_ok({"prune", "--keep", "0"}), "good\n1 run would"));
  EXPECT_EQ(list_runs(dir_.path()), std::vector{dir_.path() / "good"});
}

TEST_F(RunLogTest, ARunningOneIsNeverPruned) {
  RunRecorder recorder(folder("now"), "train", "", 8);
  cli_fails({"runs", "prune", "now", "--runs-dir", dir_.path().string()}, 2, "is running");
  EXPECT_FALSE(contains(runs_ok({"prune", "--keep", "0"}), "now\n"));
  EXPECT_EQ(runs_json({"watch", "now", "--once"})["state"], "running");
}

TEST_F(RunsTest, Misuse) {
  cli_fails({"runs"}, 2, "ACTION is missing");
  cli_fails({"runs", "wach"}, 2, "unknown action 'wach' (did you mean watch?)");
  cli_fails({"runs", "watch", "--runs-dir", dir_.path().string()}, 3, "there is no run in");
  cli_fails({"runs", "watch", "none", "--runs-dir", dir_.path().string()}, 3, "no run none");
  cli_fails({"runs", "watch", "--interval", "0"}, 2, "--interval");
  cli_fails({"runs", "show", "--once"}, 2, "--once says nothing to runs show");
  cli_fails({"runs", "list", "--yes"}, 2, "--yes says nothing to runs list: it belongs to prune");
  cli_fails({"runs", "list", "--state", "asleep"}, 2, "running, finished, failed");
  cli_fails({"runs", "list", "mine"}, 2, "runs show mine");
  cli_fails({"runs", "pin"}, 2, "takes the names of runs");
}

TEST(RunView, Sparkline) {
  EXPECT_EQ(sparkline(std::vector<double>{}, 10), "");
  EXPECT_EQ(sparkline(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(std::vector<double>{3, 3, 3}, 8), "▁▁▁");
  EXPECT_EQ(sparkline(std::vector<double>{1, NAN, 5}, 8), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{1, 3, 5, 7}, 2), "▁█");  // means 2 and 6
}

TEST(RunView, Clipped) {
  EXPECT_EQ(clipped("abc", 3), "abc");
  EXPECT_EQ(clipped("abcd", 3), "abc");
  EXPECT_EQ(clipped("▁▂▃", 2), "▁▂");
  EXPECT_EQ(clipped("你好", 3), "你");  // two columns each
  EXPECT_EQ(columns_of("a你😀"), 5U);
}

}  // namespace
}  // namespace nibble::test
