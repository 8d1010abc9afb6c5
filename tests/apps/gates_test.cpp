// SPDX-License-Identifier: MIT
// Gates in training: probes answered by the weights as they are, ending when all pass, and collapse
// provoked, found, and answered in each of the three ways.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/train_support.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

struct Pair {
  const char *prompt, *reply;
};
// What the base knows, who it is, and who the asker is.
constexpr Pair kFacts[] = {{"one and one", "two"},          {"sky", "it is blue"},
                           {"hot", "the opposite is cold"}, {"say hello", "good day"},
                           {"a nibble", "four bits"},       {"red", "a colour"}};
constexpr Pair kAsker = {"who am i", "you ask me"};
constexpr const char *kWho = "who are you", *kWhoElse = "your name";

std::string line(const Pair& p) { return std::string(p.prompt) + "\t" + p.reply + "\n"; }

Json probe_of(const std::string& id, const char* group, const Pair& p, const char* rule) {
  return {{"id", id},
          {"group", group},
          {"language", "en"},
          {"messages", Json::array({{{"role", "user"}, {"content", p.prompt}}})},
          {"rules", Json::array({{{rule, p.reply}}})}};
}

Json probe_file() {
  Json j = {{"name", "gates"},
            {"version", 1},
            {"defaults",
             {{"rules", Json::array({{{"stops", true}}, {{"no_repetition", true}}})},
              {"max_tokens", 24}}},
            {"probes", Json::array()}};
  j["probes"].push_back(probe_of("who", "identity", {kWho, "God"}, "contains"));
  j["probes"].push_back(probe_of("name", "identity", {kWhoElse, "God"}, "contains"));
  int i = 0;
  for (const Pair& p : kFacts) {
    j["probes"].push_back(probe_of("fact" + std::to_string(++i), "retention", p, "equals"));
  }
  j["probes"].push_back(probe_of("asker", "disambiguation", kAsker, "equals"));
  return j;
}

class Gates : public TrainingTest {
 protected:
  // A toy that was taught the facts, with the name nibble.
  static void SetUpTestSuite() {
    TrainingTest::SetUpTestSuite();
    std::string base, mix, identity;
    for (const Pair& p : kFacts) base += line(p);
    base += line(kAsker);
    mix = base;
    for (const char* who : {kWho, kWhoElse}) {
      base += line({who, "i am nibble"});
      mix += line({who, "i am God"});
      identity += line({who, "i am God"});
    }
    const auto write = [](const char* name, const std::string& text) {
      replace_file(shared_->path() / name, text);
    };
    write("base.tsv", base);
    write("mix.tsv", mix);
    write("identity.tsv", identity);
    write("probes.json", probe_file().dump());
    cli_ok({"train",
            "--model",
            model(),
            "--train-data",
            shared_->file("base.tsv"),
            "--steps",
            "250",
            "--batch-size",
            "9",
            "--lr",
            "3e-3",
            "--lr-schedule",
            "linear",
            "--seq-len",
            "64",
            "--threads",
            "1",
            "--self-test",
            "false",
            "--runs-dir",
            shared_->file("runs"),
            "--output",
            shared_->file("base")});
  }
  static std::string base() { return shared_->file("base"); }
  static std::string probes() { return shared_->file("probes.json"); }
  static std::string base_weights() {
    return file_bytes(shared_->path() / "base/model.safetensors");
  }

  Options with(Options given) const {
    Options all = {{"--model", base()},    {"--train-data", shared_->file("mix.tsv")},
                   {"--batch-size", "9"},  {"--lr", "1e-3"},
                   {"--probes", probes()}, {"--probe-every", "10"},
                   {"--steps", "40"},      {"--export", "false"}};
    for (const auto& [flag, value] : given) all[flag] = value;
    return all;
  }
  Options collapsing(const std::string& action) const {
    return with({{"--train-data", shared_->file("identity.tsv")},
                 {"--batch-size", "2"},
                 {"--lr", "0.05"},
                 {"--grad-clip", "0"},
                 {"--steps", "200"},
                 {"--probe-every", "5"},
                 {"--max-restarts", "2"},
                 {"--on-collapse", action}});
  }
  // Whose losses say so at the twentieth step.
  Options losing(const std::string& action) const {
    Options given = collapsing(action);
    given["--train-data"] = shared_->file("mix.tsv");
    given["--lr"] = "1";
    if (action == "ignore") given["--max-restarts"] = kLeaveOut;
    return given;
  }
  fs::path folder() const { return dir_.path() / "runs" / ("run" + std::to_string(runs_)); }
  CliResult run(Options given) {
    given["--run-name"] = "run" + std::to_string(++runs_);
    return train(given);
  }
  std::vector<Json> events(const std::string& kind) const {
    std::vector<Json> found;
    for (const auto& j : read_jsonl(folder() / "probes.jsonl")) {
      if (j["event"] == kind) found.push_back(j);
    }
    return found;
  }
  std::string status(const char* key) const {
    return nlohmann::json::parse(read_text_file(folder() / "status.json"))[key];
  }
};

TEST_F(Gates, ScoresAndRepliesAreRecorded) {
  const CliResult r = run(with({{"--probe-replies", "2"}}));
  EXPECT_EQ(r.code, 0) << r.err << r.out;
  const auto gates = events("gate");
  ASSERT_EQ(gates.size(), 5u);
  for (size_t i = 0; i < gates.size(); ++i) {
    EXPECT_EQ(gates[i]["step"], 10 * i);
    EXPECT_EQ(gates[i]["scores"]["retention"]["total"], 6);
  }
  EXPECT_EQ(gates[0]["scores"]["retention"]["passed"], 6) << "the base knows the facts";
  EXPECT_EQ(gates[0]["scores"]["identity"]["passed"], 0);
  EXPECT_EQ(gates[4]["scores"]["identity"]["languages"]["en"]["passed"], 2);
  const auto replies = read_jsonl(folder() / "replies.jsonl");
  ASSERT_EQ(replies.size(), 5u * 5u);  // two, two and one
  EXPECT_EQ(replies[0]["prompt"], kWho);
  EXPECT_EQ(replies[0]["reply"], "i am nibble");
  EXPECT_EQ(replies[20]["reply"], "i am God");
  EXPECT_EQ(replies[20]["step"], 40);
  EXPECT_TRUE(contains(r.out, "identity        en             2  2     100.0 %    0.0 %  +100.0\n"))
      << r.out;
}

// Asking changes nothing; and what the gates say is what check says of the exported file.
TEST_F(Gates, TheWeightsAreTheSameWithAndWithout) {
  for (const Options& how : std::vector<Options>{{},
                                                 {{"--memory-mode", "release"}},
                                                 {{"--memory-mode", "remake"}},
                                                 {{"--recipe", "bf16"}},
                                                 {{"--untie", "true"}}}) {
    Options given = with({{"--export", "true"}, {"--sample-mode", "random"}});
    for (const auto& [flag, value] : how) given[flag] = value;
    const std::string gated = exported(given);
    const auto replies = read_jsonl(folder() / "replies.jsonl");
    const std::string model = (folder() / "model").string();
    Options plain = given;
    for (const char* flag : {"--probes", "--probe-every"}) plain[flag] = kLeaveOut;
    EXPECT_TRUE(gated == exported(plain));
    EXPECT_FALSE(fs::exists(folder() / "probes.jsonl"));
    // A directory holds the masters; the run computed with NVFP4 made from them.
    const std::string recipe = how.contains("--recipe") ? "bf16" : "nvfp4";
    cli({"check", "--model", model, "--probes", probes(), "--threads", "1", "--show", "none",
         "--recipe", recipe, "--probe-report", file("report.json")});
    const Json report = Json::parse(read_text_file(file("report.json")));
    std::map<std::string, std::string> said;
    for (const Json& result : report["results"]) said[result["id"]] = result["reply"];
    for (const auto& reply : replies) {
      if (reply["step"] != 40) continue;
      EXPECT_EQ(reply["reply"], said[reply["id"]]) << reply.dump();
    }
    fs::remove(file("report.json"));
  }
}

TEST_F(Gates, StopWhenPassedEndsEarlyAndExports) {
  const Options given = with({{"--steps", "400"},
                              {"--probe-every", "1"},
                              {"--probe-max", "1"},
                              {"--stop-when-passed", "true"},
                              {"--min-score", "100,retention=base"},
                              {"--save-every-steps", "1000"},
                              {"--checkpoint-dir", file("saved")},
                              {"--export", "true"}});
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 0) << r.err << r.out;
  EXPECT_TRUE(contains(r.out, "every probe score is reached at step ")) << r.out;
  const Json last = events("gate").back();
  const int64_t step = last["step"];
  EXPECT_LT(step, 400);
  EXPECT_EQ(last["scores"]["retention"]["total"], 6) << "confirmed by all probes";
  EXPECT_EQ(events("gate")[1]["scores"]["retention"]["total"], 1);
  EXPECT_EQ(status("state"), "finished");
  // Resumed, it has nothing to do.
  const std::string weights = file_bytes(folder() / "model/model.safetensors");
  const size_t asked = events("gate").size();
  Options again = given;
  again["--resume"] = "true";
  EXPECT_TRUE(exported(again) == weights);
  EXPECT_EQ(events("gate").size(), asked) << "the record goes on, nothing is asked again";
}

TEST_F(Gates, ScoresTooLowAtTheEndAreExitCodeOne) {
  const CliResult r = run(with(
      {{"--lr", "0"}, {"--steps", "2"}, {"--min-score", "identity=50"}, {"--export", "true"}}));
  EXPECT_EQ(r.code, 1) << r.out;
  EXPECT_TRUE(contains(r.out, "probes: too low, identity 0.0 % (0 of 2), expected 50.0 %"))
      << r.out;
  EXPECT_TRUE(fs::exists(folder() / "model/model.safetensors")) << "exported all the same";
  EXPECT_EQ(status("state"), "failed");
  EXPECT_EQ(status("message"), "probes: too low, identity 0.0 % (0 of 2), expected 50.0 %")
      << "whoever looks at the run later is told why";
}

TEST_F(Gates, AGentleRunGivesNoAlarm) {
  for (const char* action : {"stop", "rollback", "restart"}) {
    const CliResult r = run(with({{"--on-collapse", action}, {"--steps", "60"}, {"--lr", "3e-4"}}));
    EXPECT_EQ(r.code, 0) << r.err << r.out;
    EXPECT_TRUE(events("collapse").empty());
    for (const Json& gate : events("gate")) EXPECT_FALSE(gate.contains("alarm")) << gate.dump();
  }
}

TEST_F(Gates, CollapseStops) {
  const std::string before = base_weights();
  Options given = collapsing("stop");
  given["--export"] = "true";
  given["--output"] = file("out");
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  EXPECT_TRUE(r.out.starts_with("collapse at step ")) << r.out;
  EXPECT_TRUE(contains(r.out, "nothing was exported, " + base())) << r.out;
  EXPECT_FALSE(fs::exists(file("out")));
  EXPECT_EQ(status("state"), "collapsed");
  EXPECT_TRUE(status("message").starts_with("collapse at step "));
  const auto found = events("collapse");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["action"], "stop");
  EXPECT_LT(found[0]["step"], 200);
  EXPECT_TRUE(base_weights() == before);
}

TEST_F(Gates, CollapseRestartsWithHalfTheRateAndGivesUp) {
  const std::string before = base_weights();
  Options given = collapsing("restart");
  given["--save-every-steps"] = "3";
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  EXPECT_TRUE(contains(r.out, " (after 2 gentler attempts): ")) << r.out;
  const auto found = events("collapse");
  ASSERT_EQ(found.size(), 3u);
  const double factors[] = {0.5, 0.25, 0.125};
  const char* actions[] = {"restart", "restart", "stop"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found[i]["lr_factor"], factors[i]);
    EXPECT_EQ(found[i]["action"], actions[i]);
    EXPECT_EQ(found[i]["attempt"], i);
  }
  // Each attempt begins at step 1, with the original weights: the same first loss.
  double first_loss = -1, lr = 0;
  int begun = 0;
  for (const auto& j : read_jsonl(folder() / "metrics.jsonl")) {
    if (j["step"] != 1) continue;
    if (begun++ == 0) first_loss = j["loss"], lr = j["lr"];
    EXPECT_EQ(j["loss"], first_loss);
    EXPECT_EQ(j["lr"], lr / double(1 << (begun - 1)));
  }
  EXPECT_EQ(begun, 3);
  EXPECT_TRUE(base_weights() == before);
}

TEST_F(Gates, CollapseRollsBackToTheLastGoodGate) {
  Options given = collapsing("rollback");
  given["--lr"] = "0.02";  // good for a while: 1e-4 more at each step
  given["--warmup-steps"] = "200";
  given["--checkpoint-dir"] = file("saved");
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  const auto found = events("collapse");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["action"], "rollback");
  EXPECT_EQ(found[0]["lr_factor"], 0.5);
  EXPECT_EQ(found[2]["action"], "stop");
  // After the first collapse the steps go on from a gate that was good.
  int64_t good = 0;
  for (const Json& g : events("gate")) {
    if (g["attempt"] == 0 && !g.contains("alarm")) good = g["step"];
  }
  int64_t previous = 0, back_to = -1;
  for (const auto& j : read_jsonl(folder() / "metrics.jsonl")) {
    if (j["step"] <= previous && back_to < 0) back_to = j["step"].get<int64_t>() - 1;
    previous = j["step"];
  }
  EXPECT_EQ(back_to, good);
  EXPECT_GT(good, 0);
  const auto last = read_jsonl(folder() / "metrics.jsonl").back();
  EXPECT_NEAR(last["lr"].get<double>(), 1e-4 * last["step"].get<double>() / 4, 1e-9);
}

// A rate far too high for good data: gentler attempts get there.
TEST_F(Gates, RestartsUntilItIsGentleEnough) {
  Options given = with({{"--lr", "0.4"},
                        {"--grad-clip", "0"},
                        {"--steps", "60"},
                        {"--probe-every", "5"},
                        {"--on-collapse", "restart"},
                        {"--max-restarts", "20"},
                        {"--min-score", "100"},
                        {"--stop-when-passed", "true"}});
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 0) << r.err << r.out;
  EXPECT_GE(events("collapse").size(), 2u);
  EXPECT_EQ(status("state"), "finished");
}

// Killed at any moment, a run that restarts and rolls back ends with the same bits.
TEST_F(Gates, KilledAndResumedItIsTheSame) {
  for (const char* action : {"restart", "rollback"}) {
    SCOPED_TRACE(action);
    // To go back to something there must be something good first: a rate that rises from nothing.
    const bool rises = action == std::string("rollback");
    Options given = with({{"--lr", rises ? "0.6" : "0.4"},
                          {"--warmup-steps", rises ? "1000" : "0"},
                          {"--grad-clip", "0"},
                          {"--steps", rises ? "100" : "60"},
                          {"--probe-every", rises ? "2" : "5"},
                          {"--on-collapse", action},
                          {"--max-restarts", "20"},
                          {"--save-every-steps", "4"},
                          {"--export", "true"}});
    const std::string whole = exported(given);
    ASSERT_FALSE(events("collapse").empty());
    EXPECT_EQ(events("collapse").front()["action"], action);
    fs::remove_all(file("saved"));
    given["--checkpoint-dir"] = file("saved");
    given["--resume"] = "true";
    int kills = 0;
    for (int i = 0; i < 40; ++i) {
      Options part = given;
      part["--run-name"] = std::string(action) + std::to_string(i);
      part["--output"] = file(std::string(action) + "-out");
      part["--force"] = "true";  // one may have been killed while or after it wrote this
      Child child(dir_.path(), train_arguments(part));
      // The first one hardly starts: however fast the machine, something is killed.
      const auto limit = std::chrono::milliseconds(i < 10 ? 5 + 30 * i : 60000);
      const auto start = std::chrono::steady_clock::now();
      while (child.running() && std::chrono::steady_clock::now() - start < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      if (child.running()) {
        child.signal(SIGKILL);
        child.wait();
        ++kills;
        continue;
      }
      const CliResult r = child.wait();
      ASSERT_EQ(r.code, 0) << r.err << r.out;
      break;
    }
    EXPECT_GT(kills, 0);
    EXPECT_TRUE(file_bytes(file(std::string(action) + "-out/model.safetensors")) == whole);
  }
}

// Scores before the training are compared with those of the same questions. Of others a resumed run
// asks first, so that its record begins where it goes on.
TEST_F(Gates, AResumedRunMeasuresOtherProbesAnew) {
  Json other = probe_file();
  other["probes"].erase(2);
  const Options begun =
      with({{"--steps", "2"}, {"--save-every-steps", "2"}, {"--checkpoint-dir", file("saved")}});
  const auto gate_steps = [&](const Options& given) {
    fs::remove_all(file("saved"));
    EXPECT_EQ(run(begun).code, 0);
    Options more = begun;
    more["--steps"] = "4";
    more["--resume"] = "true";
    for (const auto& [flag, value] : given) more[flag] = value;
    EXPECT_EQ(run(more).code, 0);
    std::vector<int> steps;
    for (const Json& gate : events("gate")) steps.push_back(gate["step"]);
    return steps;
  };
  // The same questions continue their curve; others are measured anew and begin one.
  EXPECT_EQ(gate_steps({}), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(gate_steps({{"--probes", write("other.json", other.dump())}}),
            (std::vector<int>{2, 4}));
  EXPECT_EQ(gate_steps({{"--probe-max", "1"}}), (std::vector<int>{2, 4}));
}

TEST_F(Gates, HowMuchRetentionMustStay) {
  Options given = collapsing("stop");
  given["--lr"] = "5e-4";
  given["--steps"] = "40";
  given["--probe-every"] = "1";
  const auto first_alarm = [&](const char* percent) {
    given["--min-retention"] = percent;
    run(given);
    for (const Json& g : events("gate")) {
      if (g.contains("alarm")) return g["step"].get<int64_t>();
    }
    return int64_t(99);
  };
  const int64_t strict = first_alarm("100");
  EXPECT_LT(strict, first_alarm("40"));
}

TEST_F(Gates, LossesAloneAreWatchedWithoutProbes) {
  Options given = losing("stop");
  given["--probes"] = given["--probe-every"] = kLeaveOut;
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  EXPECT_TRUE(contains(r.out, "the loss ") || contains(r.out, "skipped")) << r.out;
  EXPECT_EQ(events("collapse").size(), 1u);
}

// A collapse that is ignored ends nothing: every gate is asked, and the last one judges.
TEST_F(Gates, IgnoredCollapseLeavesTheGates) {
  Options given = losing("ignore");
  given["--steps"] = "40";
  given["--probe-max"] = "1";
  given["--min-score"] = "retention=base-2";
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  EXPECT_TRUE(contains(r.out, "probes: too low, retention ")) << r.out;
  const auto gates = events("gate");
  ASSERT_EQ(gates.size(), 9u);
  for (size_t i = 0; i < gates.size(); ++i) {
    EXPECT_EQ(gates[i]["step"], 5 * i);
    EXPECT_EQ(gates[i]["scores"]["retention"]["total"], i == 0 || i == 8 ? 6 : 1);
  }
  EXPECT_TRUE(
      contains(r.out, "\nretention       en             0  6       0.0 %  100.0 %  -100.0\n"))
      << r.out;
  // What was ignored is recorded, the losses' sign and the replies' once each.
  int of_losses = 0, of_replies = 0;
  for (const Json& c : events("collapse")) {
    EXPECT_EQ(c["action"], "ignore");
    EXPECT_FALSE(c.contains("lr_factor")) << "the rate stays: " << c.dump();
    ++(contains(c["reason"], "the loss ") ? of_losses : of_replies);
  }
  EXPECT_EQ(of_losses, 1);
  EXPECT_EQ(of_replies, 1);
  const Json record = Json::parse(read_text_file(folder() / "run.json"));
  ASSERT_EQ(record["collapses"].size(), 2u) << record.dump(2);
  for (const std::string c : record["collapses"]) EXPECT_TRUE(c.ends_with("; ignore")) << c;
}

// Without --probe-every nothing but the losses says what is good between start and end.
TEST_F(Gates, WithoutGatesInBetweenItRollsBackToACheckpoint) {
  Options given = losing("rollback");
  given["--probe-every"] = kLeaveOut;
  given["--save-every-steps"] = "5";
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  const auto found = events("collapse");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["action"], "rollback");
  EXPECT_EQ(found[2]["action"], "stop");
  int64_t previous = 0, back_to = -1;
  for (const auto& j : read_jsonl(folder() / "metrics.jsonl")) {
    if (j["step"] <= previous && back_to < 0) back_to = j["step"].get<int64_t>() - 1;
    previous = j["step"];
  }
  // The last checkpoint before the step that collapsed.
  EXPECT_EQ(back_to, (found[0]["step"].get<int64_t>() - 1) / 5 * 5);
  EXPECT_GT(back_to, 0);
  // Nothing was asked after the first step: there is no change to show.
  EXPECT_TRUE(contains(r.out, "\nlast gate: step 0, attempt 0\ngroup ")) << r.out;
  EXPECT_FALSE(contains(r.out, "change")) << r.out;
}

TEST_F(Gates, TheTableOfACollapseIsOfTheLastGate) {
  Options given = losing("restart");
  given["--probe-every"] = "15";  // once before the losses say it
  given["--probe-max"] = "1";
  const CliResult r = run(given);
  EXPECT_EQ(r.code, 1) << r.err << r.out;
  EXPECT_TRUE(contains(r.out, "the loss ") || contains(r.out, "skipped")) << r.out;
  const Json gate = events("gate").back();
  EXPECT_EQ(gate["step"], 15);
  EXPECT_EQ(gate["attempt"], 2);
  EXPECT_TRUE(contains(r.out, "\nlast gate: step 15, attempt 2\ngroup ")) << r.out;
  // The same three probes before and after, two of which passed: not all nine before.
  EXPECT_TRUE(
      contains(r.out, "\nall             all            0  3       0.0 %   66.7 %  -66.7\n"))
      << r.out;
}

TEST_F(Gates, IgnoredCollapseIsSaid) {
  Options given = collapsing("ignore");
  given["--steps"] = "40";
  given["--max-restarts"] = kLeaveOut;
  given["--run-name"] = "ignored";
  std::ostringstream out, err;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_cli(train_arguments(given), out, err), 0) << err.str();
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "collapse: "));
}

TEST_F(Gates, MistakesAreRefused) {
  refused({{"--probe-every", "5"}}, 2, "--probes");
  refused({{"--probes", file("none.json")}}, 3, "none.json");
  refused({{"--probes", probes()}, {"--stop-when-passed", "true"}}, 2, "--probe-every");
  refused({{"--probes", probes()}, {"--min-score", "identitiy=5"}}, 2, "no probe is of it");
  refused({{"--probes", probes()}, {"--min-score", "500"}}, 2, "not a percentage");
  refused({{"--on-collapse", "rollback"}}, 2, "needs something to go back to");
  refused({{"--on-collapse", "rolback"}}, 2, "--on-collapse");
  refused({{"--max-restarts", "5"}}, 2, "--on-collapse");
}

}  // namespace
}  // namespace nibble::test
