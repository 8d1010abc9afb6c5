// SPDX-License-Identifier: MIT
// nibble plan: what it says is what a run takes. And: no option of a training command goes
// untested.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/train_support.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Plan : public TrainingTest {
 protected:
  static std::vector<std::string> plan_arguments(const Options& given) {
    return arguments("plan", {{"--model", model()}, {"--seq-len", "64"}, {"--threads", "1"}},
                     given);
  }
  static json plan(Options given) {
    given["--json"] = "true";
    return json::parse(cli_ok(plan_arguments(given)));
  }
  // The one plan of these options.
  static json only(const Options& given) {
    const json j = plan(given);
    EXPECT_EQ(j["plans"].size(), 1u) << j;
    return j["plans"][0];
  }
  // Every arena of a run's report has the planned size, and was filled to it.
  static void expect_as_planned(const json& plan, const fs::path& report) {
    const json j = json::parse(read_text_file(report));
    uint64_t sum = 0;
    ASSERT_EQ(j["Arenas"].size(), plan["arenas"].size());
    for (const auto& a : j["Arenas"]) {
      EXPECT_EQ(a["bytes"], plan["arenas"][a["name"].get<std::string>()]) << a;
      EXPECT_EQ(a["peak_bytes"], a["bytes"]) << a;
      sum += a["bytes"].get<uint64_t>();
    }
    EXPECT_EQ(sum + plan["program_bytes"].get<uint64_t>(), plan["total_bytes"]);
  }
};

// Several ranks: memory of one of them, and what it sends.
TEST_F(Plan, OfSeveralRanks) {
  const Options exact = {{"--grad-dtype", "fp32"}, {"--recompute", "none"}};
  Options alone = exact, ranks = exact;
  alone["--memory-mode"] = "resident";
  ranks["--ranks"] = "4";
  ranks["--accumulate"] = "8";
  ranks["--link-gbit"] = "200";
  const json a = only(alone), all = plan(ranks);
  ASSERT_EQ(all["plans"].size(), 2u);
  const json &e = all["plans"][0], &f = all["plans"][1];
  EXPECT_EQ(e["memory_mode"], "sharded");
  EXPECT_EQ(f["memory_mode"], "gathered");
  for (const char* shared : {"master weights", "optimizer state"}) {
    EXPECT_LT(e["arenas"][shared], a["arenas"][shared]) << shared;
  }
  const auto activations = [](const json& p) { return p["arenas"]["activations"].get<uint64_t>(); };
  EXPECT_GE(activations(e), activations(a));
  EXPECT_LE(activations(e), activations(a) + 64 * 4 + 256);  // a number for each of 64 rows
  const json& w = all["wire"]["sharded"];
  EXPECT_EQ(w["rounds"], 2);
  const auto n = [&](const char* key) { return w[key].get<uint64_t>(); };
  EXPECT_EQ(n("total_bytes"),
            2 * (n("gradient_bytes") + n("most_embedding_row_bytes")) + n("weight_bytes"));
  // Blocks come together instead of staying, and no weights of theirs pass after the update.
  const json& of_f = all["wire"]["gathered"];
  EXPECT_LT(of_f["weight_bytes"], w["weight_bytes"]);
  EXPECT_EQ(of_f["gradient_bytes"], w["gradient_bytes"]);
  EXPECT_GT(of_f["block_bytes"], 0);
  EXPECT_EQ(w["block_bytes"], 0);
  EXPECT_DOUBLE_EQ(w["seconds"], double(n("total_bytes")) * 8 / 200e9);
  EXPECT_FALSE(plan(alone).contains("wire"));
  const std::string text = cli_ok(plan_arguments(ranks));
  EXPECT_TRUE(contains(text, "in each of 2 rounds")) << text;
  EXPECT_TRUE(contains(text, "at 200 Gbit/s")) << text;
  ranks["--accumulate"] = "6";
  cli_fails(plan_arguments(ranks), 2, "cannot be shared equally by --ranks 4");
  ranks["--accumulate"] = "1";
  ranks["--memory-mode"] = "release";
  cli_fails(plan_arguments(ranks), 2, "4 ranks train with --memory-mode sharded or gathered");
  alone["--memory-mode"] = "sharded";
  cli_fails(plan_arguments(alone), 2, "mpirun -n N");
}

// The largest batch of equal samples is known beforehand.
TEST_F(Plan, TakesWhatTrainTakes) {
  const std::string data = write("equal.tsv", "ab\tcde\nfg\thij\nkl\tmno\n");
  const auto line = metrics({{"--train-data", data}})[0];
  const int64_t rows = line["tokens"], scored = line["response_tokens"];
  for (const Options& how : std::vector<Options>{
           {{"--memory-mode", "resident"}, {"--recompute", "off"}},
           {{"--memory-mode", "resident"}, {"--recompute", "on"}, {"--accumulate", "2"}},
           {{"--memory-mode", "release"}, {"--recompute", "off"}, {"--batch-size", "2"}},
           {{"--memory-mode", "remake"}, {"--recompute", "on"}, {"--batch-size", "3"}},
           {{"--memory-mode", "remake"}, {"--recompute", "off"}, {"--model", dat()}},
           {{"--memory-mode", "D"}, {"--recompute", "mlp"}},
           {{"--memory-mode", "host"}, {"--recompute", "none"}, {"--untie", "true"}},
           {{"--memory-mode", "A"},
            {"--recompute", "off"},
            {"--compute-dtype", "bf16"},
            {"--master-dtype", "fp32"},
            {"--grad-dtype", "fp32"},
            {"--optimizer-state-mode", "fp32"}},
           {{"--memory-mode", "B"},
            {"--recompute", "on"},
            {"--untie", "true"},
            {"--optimizer-state-mode", "nvfp4"},
            {"--compute-dtype", "fp16"}},
           {{"--memory-mode", "A"},
            {"--recompute", "off"},
            {"--recipe", "bf16"},
            {"--lr-scale", "embed_tokens=0"}},
           {{"--memory-mode", "A"},
            {"--recompute", "off"},
            {"--train-last-layers", "1"},
            {"--head-recipe", "bf16"}},
           {{"--memory-mode", "A"},
            {"--recompute", "off"},
            {"--loss", "scalar"},
            {"--logits-mib", "1"}}}) {
    const auto size = how.find("--batch-size");
    const int64_t batch = size == how.end() ? 1 : std::stoll(size->second);
    Options planned = how;
    planned["--batch-tokens"] = std::to_string(rows * batch);
    planned["--batch-scored"] = std::to_string(scored * batch);
    planned["--batch-sequences"] = std::to_string(batch);
    Options run = how;
    run["--train-data"] = data;
    run["--export"] = "false";
    expect_as_planned(only(planned), trained(run) / "memory.json");
  }
}

TEST_F(Plan, TakesWhatSmokeAndProfileTake) {
  const Options how = {{"--memory-mode", "release"},
                       {"--recompute", "on"},
                       {"--seq-len", "12"},
                       {"--batch-size", "3"}};
  Options smoke = how;
  smoke.insert({{"--synthetic", "false"},
                {"--model", model()},
                {"--loss", "ce"},
                {"--threads", "1"},
                {"--steps-per-epoch", "1"},
                {"--runs-dir", file("runs")},
                {"--run-name", "smoke"}});
  cli_ok(arguments("smoke", smoke, {}));
  expect_as_planned(only(how), file("runs/smoke/memory.json"));
  Options profile = how;
  profile.insert({{"--model", model()}, {"--threads", "1"}, {"--vram-report", file("p.json")}});
  cli_ok(arguments("profile", profile, {}));
  expect_as_planned(only(how), file("p.json"));
}

TEST_F(Plan, TableAndJson) {
  const std::string table = cli_ok(plan_arguments({}));
  EXPECT_TRUE(contains(table, "parameters on cpu")) << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 12) << table;  // nine plans
  for (const char* part : {"resident  none", "resident  mlp", "release   none", "remake    block",
                           "optimizer state", "program", "total", "available "}) {
    EXPECT_TRUE(contains(table, part)) << part << " in\n" << table;
  }
  const json j = plan({});
  ASSERT_EQ(j["plans"].size(), 9u);  // modes A to C, three ways to recompute
  EXPECT_GT(j["available_bytes"], 0);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(j["plans"][i]["fits"], true);
  // From the fastest to the smallest.
  EXPECT_EQ(j["plans"][0]["memory_mode"], "resident");
  EXPECT_EQ(j["plans"][0]["recompute"], "none");
  EXPECT_LT(j["plans"][8]["total_bytes"], j["plans"][0]["total_bytes"]);
  EXPECT_EQ(plan({{"--memory-mode", "release"}})["plans"].size(), 3u);
  EXPECT_EQ(plan({{"--memory-mode", "D"}})["plans"].size(), 3u);  // said so: also on a CPU
  EXPECT_EQ(plan({{"--recompute", "on"}})["plans"].size(), 3u);
  EXPECT_EQ(plan({{"--accumulate", "2"}})["plans"].size(), 3u);           // resident only
  EXPECT_EQ(plan({{"--update-from", "quantised"}})["plans"].size(), 6u);  // no remake
  cli_fails(plan_arguments({{"--memory-mode", "D"}, {"--recipe", "bf16"}}), 2, "--recipe nvfp4");
}

// `auto` takes the first that fits: work done twice comes after gradients released, which costs
// nothing, and before NVFP4 weights made on demand.
TEST_F(Plan, TheOrderOfTheWays) {
  std::vector<std::string> ways;
  const json j = plan({});
  for (const auto& p : j["plans"]) {
    ways.push_back(p["memory_mode"].get<std::string>() + " " + p["recompute"].get<std::string>());
  }
  EXPECT_EQ(ways, (std::vector<std::string>{"resident none", "release none", "resident mlp",
                                            "release mlp", "resident block", "release block",
                                            "remake none", "remake mlp", "remake block"}));
}

TEST_F(Plan, SizesOfTheBatch) {
  const auto bytes = [&](Options given) {
    given.insert({{"--memory-mode", "resident"}, {"--recompute", "off"}});
    return only(given)["arenas"]["activations"].get<int64_t>();
  };
  const int64_t usual = bytes({});
  EXPECT_GT(bytes({{"--seq-len", "128"}}), usual);
  EXPECT_GT(bytes({{"--batch-size", "2"}}), usual);
  EXPECT_EQ(bytes({{"--batch-tokens", "64"}, {"--batch-scored", "64"}, {"--batch-sequences", "1"}}),
            usual);
  EXPECT_LT(bytes({{"--batch-tokens", "32"}}), usual);
  EXPECT_LT(bytes({{"--batch-scored", "8"}}), usual);
  EXPECT_GT(bytes({{"--batch-sequences", "64"}}), usual);
}

TEST_F(Plan, AConfigIsEnough) {
  const json by_model = plan({});
  const json by_config =
      plan({{"--model", kLeaveOut}, {"--config", shared_->file("m/config.json")}});
  EXPECT_EQ(by_config["plans"], by_model["plans"]);
  const json untied = plan(
      {{"--model", kLeaveOut}, {"--config", shared_->file("m/config.json")}, {"--untie", "true"}});
  EXPECT_EQ(untied["plans"], plan({{"--untie", "true"}})["plans"]);
  EXPECT_NE(untied["plans"], by_model["plans"]);
  cli_fails({"plan"}, 2, "plan needs --model, or --config");
  cli_fails(plan_arguments({{"--memory-mode", "release"}, {"--accumulate", "2"}}), 2,
            "released gradients cannot be accumulated");
}

TEST_F(Plan, NothingFits) {
  const CliResult r = cli(plan_arguments({{"--batch-tokens", "100000000"}}));
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(contains(r.out, "does not fit")) << r.out;
  EXPECT_FALSE(
      json::parse(cli(plan_arguments({{"--batch-tokens", "100000000"}, {"--json", "true"}}))
                      .out)["plans"][0]["fits"]
          .get<bool>());
}

// A model whose arenas exceed a GiB: what the process has in memory after a step is what was
// planned.
TEST_F(Plan, ProcessMemoryOfALargeRun) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  write_large_model("large");
  const Options how = {{"--model", file("large")},
                       {"--seq-len", "32"},
                       {"--threads", "2"},
                       {"--memory-mode", "resident"},
                       {"--recompute", "off"}};
  Options as_json = how;
  as_json["--json"] = "true";
  const json planned = json::parse(cli(plan_arguments(as_json)).out)["plans"][0];
  const auto total = double(planned["total_bytes"].get<uint64_t>());
  ASSERT_GT(total - double(planned["program_bytes"].get<uint64_t>()), double(1u << 30));
  if (!planned["fits"].get<bool>()) GTEST_SKIP() << "a GiB of memory is needed";
  Options run = how;
  run["--vram-report"] = file("large.json");
  const CliResult r = Child(dir_.path(), arguments("profile", run, {})).wait();
  ASSERT_EQ(r.code, 0) << r.err;
  const json report = json::parse(read_text_file(file("large.json")));
  double resident = 0;
  for (const auto& s : report["Samples"]) {
    if (s["Phase"] == "optimizer_step_done") resident = s["ProcRssMiB"].get<double>() * (1 << 20);
  }
  EXPECT_NEAR(resident / total, 1, 0.03) << r.out;
  EXPECT_NEAR(report["PeakProcRssMiB"].get<double>() * (1 << 20) / total, 1, 0.03);
}

// A new option without a test fails here.
TEST(TrainingOptions, EachIsInATest) {
  std::string tests;
  for (const char* name :
       {"train_test.cpp", "train_errors_test.cpp", "train_resume_test.cpp",
        "train_settings_test.cpp", "pretrain_test.cpp", "plan_test.cpp", "gates_test.cpp",
        "profile_smoke_test.cpp", "keep_test.cpp", "shown_test.cpp", "train_support.h",
        "predecessor/predecessor_test.cpp"}) {
    tests += read_text_file(fs::path(kSourceDir) / "tests/apps" / name);
  }
  for (const Command& c : commands()) {
    if (c.name != "train" && c.name != "pretrain" && c.name != "plan" && c.name != "profile" &&
        c.name != "smoke") {
      continue;
    }
    const auto body = c.make();
    for (const Field& f : body->fields().all()) {
      EXPECT_TRUE(contains(tests, "\"" + f.info.flag + "\"")) << c.name << " " << f.info.flag;
      for (const std::string& alias : f.info.aliases) {
        EXPECT_TRUE(contains(tests, "\"" + alias + "\"")) << c.name << " " << alias;
      }
    }
  }
}

}  // namespace
}  // namespace nibble::test
