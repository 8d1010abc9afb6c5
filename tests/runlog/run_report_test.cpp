// SPDX-License-Identifier: MIT
// report.html and run.json by their content: everything is there, nothing is fetched, and whatever
// a model replies stays text.
#include "runlog/run_report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <stack>
#include <thread>

#include "core/file.h"
#include "core/sha256.h"
#include "core/version.h"
#include "runlog/run_folder.h"
#include "runlog/run_hashes.h"
#include "runlog/run_recorder.h"
#include "runlog/run_report_style.h"
#include "support/text.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* const kNasty = "<script>alert(1)</script><img src=x onerror=alert(2)> & \"q\" 'a' \x07";

StepRecord step_record(int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 4.0 / double(step);
  r.smoothed_loss = 5.0 / double(step);
  r.lr = 1e-5;
  r.tokens = 100;
  r.seconds = 0.25;
  return r;
}

class RunReportTest : public testing::Test {
 protected:
  fs::path run(const std::string& name, const fs::path& weights, const std::string& output) {
    const fs::path folder = create_run_folder(dir_.path(), name);
    RunRecorder recorder(folder, "train", "command = \"train\"\nseed = 7\nlr = 0.5\n", 3);
    recorder.device("cpu (2 threads)");
    recorder.input("weights", weights);
    recorder.input("train-data", data_);
    recorder.input("eval-data", "");
    for (int64_t step = 1; step <= 3; ++step) recorder.step(step_record(step));
    recorder.held_out(2, 2.5);
    recorder.held_out(3, 2.75);
    replace_file(folder / "model.dat", output);
    recorder.exported(folder / "model.dat");
    gates(folder);
    recorder.finish(RunState::finished);
    return folder;
  }
  static void gates(const fs::path& folder) {
    std::ofstream(folder / "probes.jsonl")
        << R"({"step":0,"scores":{"identity":{"passed":0,"total":4},"retention":{"passed":9,"total":10}}})"
        << "\n"
        << R"({"step":3,"scores":{"identity":{"passed":3,"total":4,"languages":{"en":{"passed":1,"total":2},"zh":{"passed":2,"total":2}}},"retention":{"passed":10,"total":10}}})"
        << "\n"
        << R"({"step":3,"event":"collapse","reason":"<loops>","action":"rollback","lr_factor":0.5})"
        << "\n{\"step\":4,\"sco";
    std::ofstream replies(folder / "replies.jsonl");
    const auto reply = [&](int step, const char* id, const char* group, const char* prompt,
                           const char* text, bool passed) {
      replies << json{{"step", step},
                      {"id", id},
                      {"group", group},
                      {"prompt", prompt},
                      {"reply", text},
                      {"passed", passed},
                      {"failed", passed ? "" : "contains <x>"}}
                     .dump()
              << "\n";
    };
    reply(0, "a", "identity", "你是誰", "我是小核。", false);
    reply(0, "b", "retention", "談談UFO", "UFO 是\n不明飛行物。", true);
    reply(3, "a", "identity", "你是誰", "我是 F# 之神。", true);
    reply(3, "b", "retention", "談談UFO", kNasty, false);
  }

  TemporaryDirectory dir_{"report"};
  fs::path data_ = [this] {
    replace_file(dir_.path() / "pairs.tsv", "a\tb\n");
    return dir_.path() / "pairs.tsv";
  }();
  fs::path weights_ = [this] {
    replace_file(dir_.path() / "base.dat", "base");
    return dir_.path() / "base.dat";
  }();
};

// "" or what keeps the page from being well-formed XML (its doctype and script aside).
std::string problem(std::string text) {
  text = std::regex_replace(text, std::regex("^<!DOCTYPE html>"), "");
  std::stack<std::string> open;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 && c != '\n') return "a control character";
    if (text[i] == '&') {
      const size_t end = text.find(';', i);
      const std::string entity = text.substr(i, std::min(end - i + 1, size_t(8)));
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") {
        return "entity " + entity;
      }
    }
    if (text[i] != '<') {
      ++i;
      continue;
    }
    size_t end = i + 1;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return "a < in a tag: " + text.substr(i, 60);
    }
    const std::string tag = text.substr(i + 1, end - i - 1);
    const size_t from = tag[0] == '/' ? 1 : 0;
    const std::string name = tag.substr(from, tag.find_first_of(" /\n", 1) - from);
    if (from == 1) {
      if (open.empty() || open.top() != name) return "a stray </" + name;
      open.pop();
    } else if (tag.back() != '/') {
      open.push(name);
    }
    i = end + 1;
  }
  return open.empty() ? "" : "not closed: " + open.top();
}

TEST_F(RunReportTest, ThePageHasEverything) {
  run("first", weights_, "one");
  const fs::path folder = run("second", dir_.path() / "first" / "model.dat", "two");
  const std::string page = read_text_file(folder / "report.html");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
  EXPECT_EQ(problem(page), "");
  for (const char* part : {"id=\"charts\"",
                           "id=\"gates\"",
                           "id=\"replies\"",
                           "id=\"lineage\"",
                           "id=\"files\"",
                           "id=\"config\"",
                           ">Loss</text>",
                           ">Learning rate</text>",
                           ">Speed</text>",
                           ">Resident memory</text>",
                           ">Gate scores</text>",
                           ">held out</text>",
                           "3 of 4 (75.0 %)",
                           "0 of 4 (0.0 %)",
                           "cpu (2 threads)",
                           "我是 F# 之神。",
                           "我是小核。",
                           "lang=\"zh-Hant\"",
                           "UFO 是\n不明飛行物。",
                           "prefers-color-scheme:dark",
                           "name=\"viewport\"",
                           "3 / 3",
                           "en 1/2, zh 2/2",
                           "not: contains &lt;x&gt;",
                           "Collapse at step 3: &lt;loops&gt;; rollback, rate x 0.5",
                           "<a href=\"../first/report.html\">first</a>",
                           ">seed</td>"}) {
    EXPECT_TRUE(contains(page, part)) << part;
  }
  EXPECT_TRUE(contains(page, sha256_hex("two")));
  EXPECT_TRUE(contains(page, sha256_hex("a\tb\n")));
  EXPECT_TRUE(
      contains(page, (dir_.path() / "base.dat").string() + "</code> (no run here made it)"));
}

// No address but those of the runs beside it, no other way to load a thing.
TEST_F(RunReportTest, NothingIsFetched) {
  const std::string page = read_text_file(run("first", weights_, "one") / "report.html");
  for (const char* part : {"http://", "https://", "src=", "url(", "@import", "<link", "<iframe",
                           "<object", "fetch(", "XMLHttpRequest"}) {
    // Replies are text: an attribute-like word in one is escaped, not an attribute.
    const std::regex nasty("&lt;img src=x onerror=alert\\(2\\)&gt;");
    EXPECT_FALSE(contains(std::regex_replace(page, nasty, ""), part)) << part;
  }
  EXPECT_TRUE(contains(page, "default-src 'none'"));
}

TEST_F(RunReportTest, RepliesStayText) {
  const std::string page = read_text_file(run("first", weights_, "one") / "report.html");
  EXPECT_TRUE(contains(page,
                       "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x "
                       "onerror=alert(2)&gt; &amp; &quot;q&quot; 'a' ?"));
  // One script, ours, and the policy names its hash.
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos;
       at = page.find("<script", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 1u);
  EXPECT_TRUE(contains(page, std::string("<script>") + kReportScript + "</script>"));
  EXPECT_TRUE(std::regex_search(page, std::regex("script-src 'sha256-[A-Za-z0-9+/]{43}='")));
  // A name may hold anything a file name may.
  ReportContent c;
  c.record.name = "<b>&\"";
  c.record.status.message = kNasty;
  c.record.command_line = kNasty;
  c.record.config = {{"prompt", kNasty}};
  c.lineage.children = {"a b<i>#?"};
  const std::string other = report_html(c);
  EXPECT_EQ(problem(other), "");
  EXPECT_FALSE(contains(other, "<b>&"));
  EXPECT_TRUE(contains(other, "href=\"../a%20b%3Ci%3E%23%3F/report.html\""));
}

TEST_F(RunReportTest, TheRecord) {
  const fs::path folder = run("first", weights_, "one");
  const json j = json::parse(read_text_file(folder / "run.json"));
  EXPECT_EQ(j["schema"], 1);
  EXPECT_EQ(j["run"], "first");
  EXPECT_EQ(j["state"], "finished");
  EXPECT_EQ(j["exit_code"], 0);
  EXPECT_EQ(j["seed"], 7);
  EXPECT_EQ(j["config"]["lr"], 0.5);
  EXPECT_EQ(j["device"], "cpu (2 threads)");
  EXPECT_EQ(j["version"], kVersion);
  EXPECT_EQ(j["commit"], kCommit);
  EXPECT_NE(read_text_file(folder / "command.txt").find("\n# " + version_line() + ", started "),
            std::string::npos);
  EXPECT_EQ(j["metrics"]["first_loss"], 4.0);
  EXPECT_EQ(j["metrics"]["step"], 3);
  EXPECT_EQ(j["metrics"]["held_out"], (json{{"step", 3}, {"loss", 2.75}}));
  EXPECT_EQ(j["metrics"]["best_held_out"], (json{{"step", 2}, {"loss", 2.5}}));
  EXPECT_EQ(j["metrics"]["tokens"], 300);
  EXPECT_EQ(j["metrics"]["tokens_per_second"], 400.0);
  EXPECT_GT(j["memory"]["peak_rss_bytes"], 1 << 20);
  ASSERT_EQ(j["files"].size(), 3u);
  EXPECT_EQ(j["files"][0]["role"], "weights");
  EXPECT_EQ(j["files"][0]["sha256"], sha256_hex("base"));
  EXPECT_EQ(j["files"][1]["bytes"], 4);
  EXPECT_EQ(j["files"][2]["role"], "output");
  EXPECT_EQ(j["files"][2]["sha256"], sha256_hex("one"));
  ASSERT_EQ(j["gates"].size(), 2u);
  EXPECT_EQ(j["gates"][1]["scores"]["identity"]["passed"], 3);
  EXPECT_EQ(j["collapses"], json{"step 3: <loops>; rollback, rate x 0.5"});
  EXPECT_EQ(j["chain"], nullptr);

  const RunRecord back = read_record(folder);
  EXPECT_EQ(record_json(back), read_text_file(folder / "run.json"));
  EXPECT_EQ(back.setting("lr"), "0.5");
  EXPECT_EQ(back.made_by(), version_line() + " on cpu (2 threads)");
}

TEST_F(RunReportTest, ARecordFromBeforeCommitsWereWritten) {
  const fs::path folder = run("first", weights_, "one");
  json j = json::parse(read_text_file(folder / "run.json"));
  j.erase("commit");
  j["device"] = "";
  replace_file(folder / "run.json", j.dump());
  EXPECT_EQ(read_record(folder).made_by(), std::string("nibble ") + kVersion);
}

TEST_F(RunReportTest, ARecordWithoutItsFile) {
  const fs::path folder = run("first", weights_, "one");
  fs::remove(folder / "run.json");
  const RunRecord r = read_record(folder);
  EXPECT_EQ(r.state_name(), "finished");
  EXPECT_EQ(r.setting("seed"), "7");
  EXPECT_FALSE(r.command_line.empty());
  for (const char* text : {"", "{", "[]", "{\"files\":3,\"metrics\":[],\"memory\":\"x\"}",
                           "{\"files\":[3,{\"bytes\":-1}],\"chain\":{\"stage\":1e300}}"}) {
    replace_file(folder / "run.json", text);
    EXPECT_EQ(read_record(folder).state_name(), "finished") << text;
    EXPECT_NO_THROW(write_report(folder)) << text;
  }
}

TEST_F(RunReportTest, AnErrorIsExplained) {
  const fs::path folder = create_run_folder(dir_.path(), "run");
  forget_failed_run();
  {
    RunRecorder recorder(folder, "train", "", 3);
    recorder.step({.step = 1, .loss = 2});
  }
  explain_failed_run(ExitCode::file, "the disk is <full>");
  EXPECT_EQ(read_status(folder).message, "the disk is <full>");
  const json j = json::parse(read_text_file(folder / "run.json"));
  EXPECT_EQ(j["state"], "failed");
  EXPECT_EQ(j["exit_code"], 3);
  EXPECT_EQ(j["message"], "the disk is <full>");
  EXPECT_TRUE(contains(read_text_file(folder / "report.html"), "the disk is &lt;full&gt;"));
  explain_failed_run(ExitCode::usage, "another");  // said once
  EXPECT_EQ(read_status(folder).message, "the disk is <full>");
}

TEST_F(RunReportTest, LineageByHash) {
  run("a", weights_, "one");
  fs::rename(dir_.path() / "a" / "model.dat", dir_.path() / "moved.dat");
  run("b", dir_.path() / "moved.dat", "two");
  run("c", dir_.path() / "b" / "model.dat", "three");
  run("d", dir_.path() / "b" / "model.dat", "four");
  const std::vector<RunRecord> all = read_records(dir_.path());
  ASSERT_EQ(all.size(), 4u);
  const Lineage b = lineage_of(all[1], all);
  EXPECT_EQ(b.ancestors, (std::vector<std::string>{"a"}));
  EXPECT_EQ(b.children, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(b.origin, weights_.string());
  EXPECT_EQ(lineage_of(all[3], all).ancestors, (std::vector<std::string>{"b", "a"}));
  EXPECT_TRUE(lineage_of(all[0], all).ancestors.empty());
}

TEST(BackgroundHashes, ManyFilesAndMissingOnes) {
  const TemporaryDirectory dir("hashes");
  BackgroundHashes hashes;
  hashes.wait();
  for (int i = 0; i < 20; ++i) {
    const std::string file = dir.file(std::to_string(i));
    replace_file(file, std::string(size_t(i) * 1000, 'x'));
    hashes.add(file);
  }
  hashes.add(dir.path() / "none");
  hashes.wait();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(hashes.result(dir.file(std::to_string(i))),
              sha256_hex(std::string(size_t(i) * 1000, 'x')));
  }
  EXPECT_EQ(hashes.result(dir.path() / "none"), "");
  EXPECT_FALSE(hashes.result(dir.path() / "never asked"));
}

TEST(BackgroundHashes, GivesUpInTime) {
  const TemporaryDirectory dir("hashes");
  { std::ofstream out(dir.path() / "big"); }
  fs::resize_file(dir.path() / "big", uint64_t(1) << 40);  // a hole of a terabyte
  BackgroundHashes hashes;
  hashes.add(dir.path() / "big");
  const auto start = std::chrono::steady_clock::now();
  hashes.wait_at_most(0.05);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_TRUE(hashes.result(dir.path() / "big").value_or("").empty());
}

}  // namespace
}  // namespace nibble::test
