// SPDX-License-Identifier: MIT
// Probe files, and nibble check --probes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/cli_run.h"
#include "eval/probe_file.h"
#include "eval/probe_report.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

Json one_probe(const std::string& id = "a") {
  return {{"id", id},
          {"group", "identity"},
          {"language", "zh"},
          {"messages", Json::array({{{"role", "user"}, {"content", "你是誰"}}})},
          {"rules", Json::array({{{"contains", "F#"}}})}};
}
Json good_file() {
  return {{"name", "test"},
          {"version", 1},
          {"defaults", {{"rules", Json::array({{{"stops", true}}})}, {"max_tokens", 9}}},
          {"probes", Json::array({one_probe("a"), one_probe("b")})}};
}

void refused(const std::string& text, const std::string& part) {
  try {
    parse_probes(text, "p.json");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const FormatError& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("p.json: ")) << e.what();
    EXPECT_TRUE(contains(e.what(), part)) << part << " in\n" << e.what();
  }
}
// The good file with one value replaced, by JSON pointer; a null value removes it.
void refused_with(const std::string& pointer, const Json& value, const std::string& part) {
  Json j = good_file();
  const Json::json_pointer at(pointer);
  if (value.is_null()) {
    j[at.parent_pointer()].erase(at.back());
  } else {
    j[at] = value;
  }
  SCOPED_TRACE(pointer);
  refused(j.dump(), part);
}

TEST(ProbeFile, Everything) {
  Json j = good_file();
  j["probes"][0]["rules"] = Json::array({{{"contains_any", {"x", "y"}}},
                                         {{"equals", "e"}},
                                         {{"not_contains", "n"}},
                                         {{"language", "en"}},
                                         {{"no_repetition", true}}});
  j["probes"][0]["base_rules"] = Json::array({{{"contains", "Qwen"}}});
  j["probes"][0]["max_tokens"] = 3;
  j["probes"][0]["messages"] = Json::array({{{"role", "system"}, {"content", "s"}},
                                            {{"role", "user"}, {"content", "u"}},
                                            {{"role", "assistant"}, {"content", "a"}},
                                            {{"role", "user"}, {"content", "v"}}});
  const ProbeSet set = parse_probes(j.dump(), "p.json");
  EXPECT_EQ(set.name, "test");
  ASSERT_EQ(set.probes.size(), 2u);
  const Probe& p = set.probes[0];
  EXPECT_EQ(p.max_tokens, 3);
  ASSERT_EQ(p.rules.size(), 6u);  // its own, then those of all
  EXPECT_EQ(p.rules[0].texts, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(p.rules[3].language, ReplyLanguage::english);
  EXPECT_EQ(p.rules[5].kind, ProbeRule::Kind::stops);
  ASSERT_TRUE(p.base_rules);
  EXPECT_EQ(p.base_rules->size(), 2u);
  EXPECT_EQ(rules_of(p, WhichRules::base)[0].texts[0], "Qwen");
  EXPECT_EQ(prompt_text(p.messages), "[system] s / u / [assistant] a / v");
  EXPECT_EQ(set.probes[1].max_tokens, 9);
  EXPECT_EQ(rules_of(set.probes[1], WhichRules::base)[0].texts[0], "F#");
}

TEST(ProbeFile, AnAssistantsMessageWithoutContentIsTheModelsOwn) {
  Json j = good_file();
  const Json user = {{"role", "user"}, {"content", "u"}}, own = {{"role", "assistant"}};
  Json judged = own;
  judged["rules"] = Json::array({{{"contains", "x"}}});
  j["probes"][0]["messages"] = Json::array({user, own, user, judged, user});
  const Probe p = parse_probes(j.dump(), "p.json").probes[0];
  ASSERT_EQ(p.own_turns.size(), 2u);
  EXPECT_EQ(p.own_turns[0].at, 1u);
  EXPECT_TRUE(p.own_turns[0].rules.empty());
  EXPECT_EQ(p.own_turns[1].at, 3u);
  EXPECT_EQ(p.own_turns[1].rules[0].texts[0], "x");
  EXPECT_EQ(p.messages[3].content, "");
  refused_with("/probes/0/messages", Json::array({own, user}), "it follows a user's");
  refused_with("/probes/0/messages", Json::array({user, own, own, user}), "it follows a user's");
  refused_with("/probes/0/messages", Json::array({user, own}), "the last message must be");
  Json both = judged;
  both["content"] = "a";
  refused_with("/probes/0/messages", Json::array({user, both, user}), "leave out its content");
}

TEST(ProbeFile, MistakesAreNamed) {
  refused("", "no valid JSON");
  refused("{", "no valid JSON");
  refused("[]", "expected an object");
  refused(std::string(100, '['), "nested deeper than");
  refused(R"({"name":"a","name":"b"})", "the key 'name' is given twice");
  refused("{\"name\":\"\xff\"}", "no valid JSON");
  refused_with("/version", 2, "version 2, this program reads 1");
  refused_with("/version", nullptr, "the key 'version' is missing");
  refused_with("/name", 3, "name: expected a text, found number");
  refused_with("/probe", 3, "unknown key 'probe'; did you mean 'probes'?");
  refused_with("/probes", Json::array(), "'probes' is no list");
  refused_with("/probes/0/rule", 3, "probe 1: unknown key 'rule'; did you mean 'rules'?");
  refused_with("/probes/1/id", "a", "probe 2 ('a'): another probe has the same id");
  refused_with("/probes/0/id", "", "the text is empty");
  refused_with("/probes/0/group", "a/b", "the group 'a/b' holds one of / = ,");
  refused_with("/probes/0/language", "fr", "'fr' is not one of zh, en");
  refused_with("/probes/0/max_tokens", 0, "0 is not a whole number from 1 to 65536");
  refused_with("/probes/0/max_tokens", 1.5, "1.5 is not a whole number");
  refused_with("/probes/0/messages", Json::array(), "expected a list of messages");
  refused_with("/probes/0/messages/0/role", "tool", "the role 'tool' is not one of");
  refused_with("/probes/0/messages/0/role", "assistant", "the last message must be the user's");
  refused_with("/probes/0/messages/0/text", "x", "unknown key 'text'");
  refused_with("/probes/0/rules/0", {{"contain", "x"}},
               "rule 1: unknown key 'contain'; did you mean 'contains'?");
  refused_with("/probes/0/rules/0", {{"contains", "x"}, {"stops", true}}, "a rule has one key");
  refused_with("/probes/0/rules/0", Json::object(), "a rule has one key, found 0");
  refused_with("/probes/0/rules/0", {{"contains", Json::array({"x"})}}, "expected a text");
  refused_with("/probes/0/rules/0", {{"contains_any", Json::array()}}, "expected a list of texts");
  refused_with("/probes/0/rules/0", {{"contains_any_word", "AI"}}, "expected a list of texts");
  refused_with("/probes/0/rules/0", {{"stops", false}}, "expected true, found false");
  refused_with("/probes/0/rules", 3, "rules: expected a list, found number");
  refused_with("/defaults/rule", 3, "defaults: unknown key 'rule'");
  Json none = good_file();
  none.erase("defaults");
  none["probes"][0].erase("rules");
  refused(none.dump(), "no rules: every reply would pass");
}

TEST(ProbeReport, ScoresComeBack) {
  ProbeScores s;
  s.groups = {{"identity", {3, 4}, {{"zh", {1, 2}}, {"en", {2, 2}}}}, {"other", {1, 1}, {}}};
  s.all = {4, 5};
  const ProbeScores again = scores_from_json(nlohmann::json(scores_json(s)), "x");
  EXPECT_EQ(scores_json(again).dump(), scores_json(s).dump());
  EXPECT_EQ(again.find("identity")->languages.at("zh").total, 2);
  for (const char* bad :
       {"3", "{}", R"({"groups":[{}],"passed":0,"total":0})",
        R"({"groups":[],"passed":2,"total":1})", R"({"groups":[],"passed":-1,"total":1})",
        R"({"groups":[],"passed":1e99,"total":1})"}) {
    EXPECT_THROW(scores_from_json(nlohmann::json::parse(bad), "x"), FormatError) << bad;
  }
}

// On a toy that babbles, but always the same.
class CheckProbes : public testing::Test {
 protected:
  void SetUp() override { write_toy_directory(dir_.path() / "m"); }
  std::string write(const std::string& name, const Json& j) {
    replace_file(dir_.path() / name, j.dump());
    return dir_.file(name);
  }
  CliResult check(std::vector<std::string> more) {
    std::vector<std::string> args = {"check", "--model", dir_.file("m"), "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return cli(args);
  }
  // Eight questions; nothing is against the rules but what `rule` says.
  Json questions(const Json& rule) {
    Json j = {{"name", "toy"}, {"version", 1}, {"probes", Json::array()}};
    for (int i = 0; i < 8; ++i) {
      Json p = one_probe("p" + std::to_string(i));
      p["group"] = i < 4 ? "identity" : "retention";
      p["language"] = i % 2 ? "en" : "zh";
      p["messages"][0]["content"] = "question " + std::to_string(i);
      p["rules"] = Json::array({rule});
      p["max_tokens"] = 8;
      j["probes"].push_back(p);
    }
    return j;
  }
  TemporaryDirectory dir_{"check-probes"};
};

TEST_F(CheckProbes, ScoresFailuresReportAndBaseline) {
  const Json never = {{"contains", "no reply says this"}};
  const std::string all_fail = write("fail.json", questions(never));
  const CliResult failed = check({"--probes", all_fail, "--probe-report", dir_.file("r.json")});
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_TRUE(contains(failed.out, "FAIL probes: 0 of 8 passed (0.0 %)")) << failed.out;
  EXPECT_TRUE(contains(failed.out, "FAILED p3\n  prompt question 3\n  reply  ")) << failed.out;
  EXPECT_TRUE(contains(failed.out, "  rule   contains \"no reply says this\"")) << failed.out;
  EXPECT_FALSE(contains(failed.out, "finite")) << "only what was asked for";
  const Json report = Json::parse(read_text_file(dir_.file("r.json")));
  EXPECT_EQ(report["passed"], false);
  ASSERT_EQ(report["results"].size(), 8u);
  EXPECT_EQ(report["results"][2]["failed"], "contains \"no reply says this\"");
  EXPECT_EQ(report["scores"]["groups"][1]["name"], "retention");

  // What it said is now what is asked for, but for one probe.
  Json said = questions(never);
  for (size_t i = 0; i + 1 < 8; ++i) {
    said["probes"][i]["base_rules"] = said["probes"][i]["rules"];
    said["probes"][i]["rules"] = Json::array({{{"equals", report["results"][i]["reply"]}}});
  }
  const std::string good = write("good.json", said);
  const auto probes = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--probes", good});
    return check(more);
  };
  const CliResult most =
      probes({"--min-score", "75,identity=100", "--probe-baseline", dir_.file("r.json")});
  EXPECT_EQ(most.code, 0) << most.out << most.err;
  EXPECT_TRUE(contains(most.out, "PASS probes: 7 of 8 passed (87.5 %)")) << most.out;
  EXPECT_TRUE(contains(most.out, "FAILED p7\n")) << most.out;
  EXPECT_FALSE(contains(most.out, " p6\n")) << most.out;
  EXPECT_TRUE(contains(most.out, "identity   all            4  4     100.0 %    0.0 %  +100.0\n"))
      << most.out;
  EXPECT_TRUE(contains(most.out, "retention  en             1  2      50.0 %    0.0 %  +50.0\n"))
      << most.out;
  EXPECT_EQ(probes({}).code, 1) << "without a threshold every probe must pass";
  const CliResult low = probes({"--min-score", "retention=76"});
  EXPECT_EQ(low.code, 1);
  EXPECT_TRUE(contains(low.out, "retention 75.0 % (3 of 4), expected 76.0 %")) << low.out;
  EXPECT_EQ(
      probes({"--min-score", "0,retention=base+75", "--probe-baseline", dir_.file("r.json")}).code,
      0);
  const CliResult base = probes({"--probe-rules", "base"});
  EXPECT_TRUE(contains(base.out, "0 of 8")) << base.out;
  EXPECT_TRUE(contains(probes({"--show", "all"}).out, "ok     p6\n"));
  EXPECT_FALSE(contains(probes({"--show", "none"}).out, "p7"));
  EXPECT_TRUE(contains(probes({"--probe-max", "2"}).out, " of 4 passed"));
  // Every reply is cut: none is what it was.
  EXPECT_TRUE(contains(probes({"--max-tokens", "1"}).out, "probes: 0 of 8"));
  // Other weights, other activations: the command works on both kinds.
  EXPECT_TRUE(contains(probes({"--recipe", "nvfp4"}).out, "probes: "));
  const CliResult json = probes({"--json", dir_.file("check.json"), "--finite"});
  EXPECT_TRUE(contains(json.out, "PASS finite")) << json.out;
  const Json checks = Json::parse(read_text_file(dir_.file("check.json")));
  EXPECT_EQ(checks["checks"][1]["scores"]["passed"], 7);
}

// Drawn replies, of several turns, too: who is asked by which copy of the model makes no
// difference.
TEST_F(CheckProbes, ReplicasShareTheProbes) {
  Json j = questions({{"stops", true}});
  j["probes"][1]["messages"] = Json::array({{{"role", "user"}, {"content", "one"}},
                                            {{"role", "assistant"}, {"content", "two"}},
                                            {{"role", "user"}, {"content", "three"}}});
  const std::string file = write("p.json", j), report = dir_.file("r.json");
  const auto results = [&](const char* devices) {
    const CliResult r = check({"--probes", file, "--probe-report", report, "--force", "--show",
                               "all", "--device", devices, "--temperature", "1.3", "--seed", "5"});
    EXPECT_TRUE(contains(r.out, " of 8 passed")) << r.out << r.err;
    return Json::parse(read_text_file(report))["results"];
  };
  const Json one = results("cpu");
  EXPECT_EQ(results("cpu,cpu"), one);
  EXPECT_EQ(results("cpu,cpu,cpu"), one);
}

TEST_F(CheckProbes, RepliesThatPassBecomeTrainingData) {
  Json j = questions({{"no_repetition", true}});
  // One that cannot pass, and one of several turns.
  j["probes"][0]["rules"] = Json::array({{{"contains", "no reply says this"}}});
  j["probes"][1]["rules"] = Json::array({{{"not_contains", "no reply says this"}}});
  j["probes"][1]["messages"] = Json::array({{{"role", "system"}, {"content", "s \"q\""}},
                                            {{"role", "user"}, {"content", "one"}},
                                            {{"role", "assistant"}, {"content", "two"}},
                                            {{"role", "user"}, {"content", "three"}}});
  const std::string data = dir_.file("new/rows.jsonl");
  check({"--probes", write("p.json", j), "--probe-report", dir_.file("r.json"), "--probe-data",
         data});
  const Json results = Json::parse(read_text_file(dir_.file("r.json")))["results"];
  std::istringstream lines(read_text_file(data));
  std::string line;
  size_t rows = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]["passed"]) continue;
    ++rows;
    ASSERT_TRUE(std::getline(lines, line)) << "passed, but no row: " << results[i];
    Json messages = j["probes"][i]["messages"];
    messages.push_back({{"role", "assistant"}, {"content", results[i]["reply"]}});
    EXPECT_EQ(Json::parse(line), (Json{{"messages", messages}}));
  }
  EXPECT_FALSE(std::getline(lines, line)) << "a row of a reply that failed: " << line;
  EXPECT_FALSE(results[0]["passed"]);
  EXPECT_TRUE(results[1]["passed"]) << results[1];
  EXPECT_GE(rows, 1u);
}

TEST_F(CheckProbes, MistakesAreRefused) {
  const std::string file = write("p.json", questions({{"stops", true}}));
  const auto fails = [&](std::vector<std::string> more, int code, const std::string& part) {
    const CliResult r = check(more);
    EXPECT_EQ(r.code, code) << r.out;
    EXPECT_TRUE(contains(r.err, part)) << r.err;
  };
  fails({"--probes", dir_.file("none.json")}, 3, "none.json");
  fails({"--probes", dir_.file("m/config.json")}, 3, "unknown key");
  fails({"--min-score", "5"}, 2, "--probes");
  fails({"--probes", file, "--min-score", "identitiy=5"}, 2,
        "--min-score identitiy: no probe is of it; the groups are identity, retention");
  fails({"--probes", file, "--min-score", "base-2"}, 2, "there is no baseline");
  fails({"--probes", file, "--probe-baseline", file}, 3, "is no report");
  fails({"--probes", file, "--probe-report", file}, 2, file);
  fails({"--probes", file, "--probe-report", dir_.file("m/config.json")}, 2, "config.json");
  fails({"--probes", file, "--probe-data", dir_.file("rows.tsv")}, 2, ".jsonl");
  // Two outputs are two files, by whatever way they are named.
  const std::string one = dir_.file("one.jsonl"), same = dir_.file("m/../one.jsonl");
  fails({"--probes", file, "--probe-report", one, "--json", same}, 2,
        "--json and --probe-report are the same file");
  fails({"--probes", file, "--probe-data", one, "--json", same}, 2,
        "--json and --probe-data are the same file");
  fails({"--probes", file, "--probe-data", one, "--probe-report", one}, 2,
        "--probe-report and --probe-data are the same file");
  EXPECT_FALSE(std::filesystem::exists(one));
  const std::string there = dir_.file("there.jsonl");
  replace_file(there, "mine");
  fails({"--probes", file, "--probe-data", there}, 2, there);
  EXPECT_EQ(read_text_file(there), "mine");
  fails({"--probes", file, "--max-tokens", "8", "--context", "4"}, 2, "the context is full");
  fails({"--probes", file, "--show", "some"}, 2, "--show");
}

}  // namespace
}  // namespace nibble::test
