// SPDX-License-Identifier: MIT
// nibble profile and nibble smoke, option by option.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/train_support.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kPhases = {
    "start",          "model_loaded",  "state_initialized",   "batch_ready",
    "zero_grad_done", "backward_done", "optimizer_step_done", "cleanup_done"};

class Profile : public TrainingTest {
 protected:
  std::string profile(const Options& given) {
    return cli_ok(arguments(
        "profile", {{"--model", model()}, {"--seq-len", "16"}, {"--threads", "1"}}, given));
  }
  void profile_refused(const Options& given, int code, const std::string& part) {
    cli_fails(arguments("profile", {{"--model", model()}, {"--threads", "1"}}, given), code, part);
  }
  // The phases that were printed, in order.
  static std::vector<std::string> phases_in(const std::string& out) {
    std::vector<std::string> found;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      for (const std::string& p : kPhases) {
        if (line.starts_with(p + " ")) found.push_back(p);
      }
    }
    return found;
  }
};

TEST_F(Profile, OneStepPhaseByPhase) {
  const std::string before = file_bytes(fs::path(model()) / "model.safetensors");
  const std::string out = profile({});
  EXPECT_EQ(phases_in(out), kPhases) << out;
  for (const char* arena :
       {"master weights", "NVFP4 weights", "optimizer state", "gradients", "activations"}) {
    EXPECT_TRUE(contains(out, arena)) << out;
  }
  EXPECT_TRUE(contains(out, "loss=")) << out;
  EXPECT_TRUE(contains(out, "grad_l2=")) << out;
  EXPECT_TRUE(contains(out, "tokens=16 scored=16 ")) << out;
  EXPECT_FALSE(contains(out, "median"));
  EXPECT_EQ(file_bytes(fs::path(model()) / "model.safetensors"), before);
}

TEST_F(Profile, RandomWeightsNeedAConfigOnly) {
  const std::string config = (fs::path(model()) / "config.json").string();
  const Options few = {{"--random-weights", "true"}, {"--seq-len", "16"}, {"--threads", "1"}};
  Options with = few;
  with["--config"] = config;
  const std::string out = cli_ok(arguments("profile", with, {}));
  EXPECT_EQ(phases_in(out), kPhases) << out;
  for (const char* part : {"forward_done ", "head_done "}) EXPECT_TRUE(contains(out, part)) << out;
  cli_fails(arguments("profile", few, {}), 2, "--config");
  with["--model"] = model();
  cli_fails(arguments("profile", with, {}), 2, "--random-weights takes no --model");
}

TEST_F(Profile, StopAfterEveryPhase) {
  for (size_t i = 0; i < kPhases.size(); ++i) {
    const std::string report = file(kPhases[i] + ".json");
    const std::string out = profile({{"--stop-after", kPhases[i]}, {"--vram-report", report}});
    const std::vector<std::string> want(kPhases.begin(), kPhases.begin() + int(i) + 1);
    EXPECT_EQ(phases_in(out), want);
    EXPECT_TRUE(contains(out, "stopped after " + kPhases[i])) << out;
    EXPECT_EQ(nlohmann::json::parse(read_text_file(report))["Samples"].size(), i + 1);
  }
  EXPECT_EQ(phases_in(profile({{"--stop-after", "none"}})), kPhases);
  profile_refused({{"--stop-after", "lunch"}}, 2, "--stop-after");
}

TEST_F(Profile, VramReport) {
  profile({{"--vram-report", file("new/report.json")}});
  const auto j = nlohmann::json::parse(read_text_file(file("new/report.json")));
  std::vector<std::string> phases;
  for (const auto& s : j["Samples"]) {
    EXPECT_TRUE(s.contains("PidMemoryMiB") && s.contains("TotalMemoryMiB"));
    phases.push_back(s["Phase"]);
  }
  EXPECT_EQ(phases, kPhases);
  EXPECT_EQ(j["Arenas"].size(), 5u);
  // Written when the run fails, too.
  profile_refused(
      {{"--vram-report", file("failed.json")}, {"--memory-mode", "release"}, {"--accumulate", "2"}},
      2, "released gradients");
  EXPECT_EQ(nlohmann::json::parse(read_text_file(file("failed.json")))["Samples"].size(), 1u);
}

TEST_F(Profile, TheReportReplacesNoInput) {
  fs::copy(model(), file("m"), fs::copy_options::recursive);
  fs::copy(pairs(), file("pairs.tsv"));
  for (const char* name :
       {"m/model.safetensors", "m/config.json", "m/tokenizer.json", "pairs.tsv"}) {
    const std::string before = file_bytes(file(name));
    profile_refused({{"--model", file("m")},
                     {"--train-data", file("pairs.tsv")},
                     {"--vram-report", file(name)}},
                    2, "is an input");
    EXPECT_TRUE(file_bytes(file(name)) == before) << name;
  }
  const std::string config = file("m/config.json"), before = file_bytes(config);
  cli_fails({"profile", "--random-weights", "--config", config, "--vram-report", config}, 2,
            "is an input");
  EXPECT_EQ(file_bytes(config), before);
  // A model that is not whole is not replaced either.
  const std::string weights = file_bytes(file("m/model.safetensors"));
  fs::remove(config);
  profile_refused(
      {{"--model", file("m/model.safetensors")}, {"--vram-report", file("m/model.safetensors")}}, 3,
      "config.json");
  EXPECT_TRUE(file_bytes(file("m/model.safetensors")) == weights);
}

TEST_F(Profile, WarmupAndRepeat) {
  const auto loss = [](const std::string& out) {
    const size_t at = out.find("loss=");
    return out.substr(at, out.find(' ', at) - at);
  };
  const std::string cold = profile({{"--lr", "1e-2"}}),
                    warm = profile({{"--lr", "1e-2"}, {"--warmup", "3"}});
  EXPECT_NE(loss(cold), loss(warm));  // three updates later
  EXPECT_EQ(phases_in(warm), kPhases);
  const std::string repeated = profile({{"--lr", "1e-2"}, {"--repeat", "5"}});
  EXPECT_EQ(loss(repeated), loss(cold));
  EXPECT_TRUE(contains(repeated, "5 steps: median ")) << repeated;
}

TEST_F(Profile, SamplesAndBatches) {
  const auto tokens = [&](Options given) {
    given["--train-data"] = pairs();
    given["--seq-len"] = "64";
    const std::string out = profile(given);
    const size_t at = out.find("tokens=");
    return std::stoi(out.substr(at + 7));
  };
  const int first = tokens({}), second = tokens({{"--sample-index", "1"}});
  EXPECT_NE(first, second);
  EXPECT_EQ(tokens({{"--sample-index", std::to_string(kSamples)}}), first);  // around
  EXPECT_EQ(tokens({{"--batch-size", "2"}}), first + second);
  EXPECT_EQ(tokens({{"--accumulate", "2"}}), first + second);
  EXPECT_TRUE(contains(profile({{"--batch-size", "3"}, {"--accumulate", "2"}}), "tokens=96 "));
  // Long responses are cut: this is no training.
  EXPECT_TRUE(
      contains(profile({{"--train-data", pairs()}, {"--seq-len", "4"}}), "tokens=4 scored=4"));
  profile_refused({{"--sample-index", "1"}}, 2,
                  "--sample-index has no effect without --train-data");
  profile_refused({{"--train-data", file("none.tsv")}}, 3, "none.tsv");
  profile_refused({{"--seq-len", "1000"}}, 2, "knows positions up to 512");
  Config small = toy_chat_config();
  small.V = 264;
  write_toy_directory(dir_.path() / "small", small);
  profile_refused({{"--model", file("small")}, {"--train-data", pairs()}}, 3, "264");
}

class Smoke : public TrainingTest {
 protected:
  std::vector<std::string> smoke_arguments(const Options& given) const {
    return arguments("smoke",
                     {{"--in-features", "64"},
                      {"--out-features", "64"},
                      {"--max-layers", "1"},
                      {"--vocabulary", "128"},
                      {"--steps-per-epoch", "3"},
                      {"--threads", "1"},
                      {"--runs-dir", file("runs")},
                      {"--run-name", "run"}},
                     given);
  }
  fs::path smoke(Options given) {
    const std::string name = "run" + std::to_string(++runs_);
    given["--run-name"] = name;
    const CliResult r = cli(smoke_arguments(given));
    EXPECT_EQ(r.code, 0) << r.err;
    last_out_ = r.out;
    return dir_.path() / "runs" / name;
  }
  void smoke_refused(const Options& given, int code, const std::string& part) {
    cli_fails(smoke_arguments(given), code, part);
  }
  // A real model has sizes of its own.
  static Options real(const std::string& model) {
    return {{"--synthetic", "false"},     {"--model", model},
            {"--in-features", kLeaveOut}, {"--out-features", kLeaveOut},
            {"--max-layers", kLeaveOut},  {"--vocabulary", kLeaveOut}};
  }
};

TEST_F(Smoke, Synthetic) {
  const fs::path run = smoke({{"--epochs", "2"}});
  const auto lines = read_jsonl(run / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["tokens"], 16);  // two of eight
  EXPECT_TRUE(contains(last_out_, "6 steps, loss ")) << last_out_;
  EXPECT_TRUE(contains(last_out_, ", 0 skipped")) << last_out_;
  const auto model = open_tensor_source(run / "synthetic.safetensors");
  EXPECT_EQ(model->at("model.embed_tokens.weight").shape, (std::vector<int64_t>{128, 64}));
  EXPECT_EQ(model->at("model.layers.0.mlp.up_proj.weight").shape, (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(model->find("model.layers.1.input_layernorm.weight"), nullptr);
  const auto j = nlohmann::json::parse(read_text_file(run / "memory.json"));
  const auto& last = j["Samples"].back();  // the third step of the second epoch
  EXPECT_EQ(last["Epoch"], 1);
  EXPECT_EQ(last["StepInEpoch"], 3);
  EXPECT_EQ(last["GlobalStep"], 6);
}

// As the predecessor's main program was called.
TEST_F(Smoke, ThePredecessorsFlags) {
  const fs::path run = smoke({{"--device", "cpu"},
                              {"--epochs", "1"},
                              {"--synthetic", "true"},
                              {"--loss-mode", "scalar-l1"},
                              {"--master-dtype", "bfloat16"},
                              {"--optimizer-state-mode", "8bit"},
                              {"--optimizer-step-chunk-rows", "32"},
                              {"--train-step-vram-report", file("vram.json")},
                              {"--checkpoint-dir", file("checkpoints")},
                              {"--save-every-steps", "0"},
                              {"--resume", "false"}});
  EXPECT_TRUE(fs::exists(file("vram.json")));
  EXPECT_EQ(read_jsonl(run / "metrics.jsonl").size(), 3u);
  // Not needed any more: said, and the run goes on.
  for (const char* flag :
       {"--use-packed-optimizer", "--profile-train-step-vram", "--strict-load"}) {
    testing::internal::CaptureStderr();
    smoke({{flag, "true"}});
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(log, std::string(flag) + " is not needed by smoke: ")) << log;
  }
}

TEST_F(Smoke, TheReportReplacesNoInput) {
  fs::copy(model(), file("m"), fs::copy_options::recursive);
  for (const char* name : {"m/model.safetensors", "m/config.json"}) {
    const std::string before = file_bytes(file(name));
    Options given = real(file("m"));
    given["--vram-report"] = file(name);
    smoke_refused(given, 2, "is an input");
    EXPECT_TRUE(file_bytes(file(name)) == before) << name;
  }
  EXPECT_FALSE(fs::exists(file("runs"))) << "nothing was begun";
}

TEST_F(Smoke, SizesAndBatches) {
  const fs::path run = smoke({{"--in-features", "128"},
                              {"--out-features", "96"},
                              {"--max-layers", "2"},
                              {"--vocabulary", "200"},
                              {"--seq-len", "5"},
                              {"--batch-size", "3"},
                              {"--accumulate", "2"},
                              {"--steps-per-epoch", "1"}});
  EXPECT_EQ(read_jsonl(run / "metrics.jsonl")[0]["tokens"], 30);
  const auto model = open_tensor_source(run / "synthetic.safetensors");
  EXPECT_EQ(model->at("model.layers.1.mlp.down_proj.weight").shape,
            (std::vector<int64_t>{128, 96}));
  EXPECT_EQ(model->at("model.embed_tokens.weight").shape, (std::vector<int64_t>{200, 128}));
  smoke_refused({{"--in-features", "100"}}, 2, "--in-features must be a multiple of 64");
  smoke_refused({{"--out-features", "40"}}, 2, "--out-features");
  smoke_refused({{"--max-layers", "0"}}, 2, "--max-layers");
  smoke_refused({{"--vocabulary", "1"}}, 2, "--vocabulary");
  smoke_refused({{"--steps-per-epoch", "0"}}, 2, "--steps-per-epoch");
  smoke_refused({{"--epochs", "9000000000000000000"}}, 2, "are too many steps");
}

TEST_F(Smoke, LossesAndRates) {
  const auto line = [&](const Options& given) {
    return read_jsonl(smoke(given) / "metrics.jsonl")[0];
  };
  const auto usual = line({});
  EXPECT_EQ(usual["lr"], 1e-3);
  EXPECT_EQ(line({{"--loss", "scalar"}})["loss"], usual["loss"]);
  EXPECT_NE(line({{"--loss", "ce"}})["loss"], usual["loss"]);
  EXPECT_NEAR(line({{"--loss", "ce"}})["loss"].get<double>(), std::log(128), 0.5);
  EXPECT_NE(line({{"--seed", "2"}})["loss"], usual["loss"]);
}

TEST_F(Smoke, ARealModel) {
  for (const std::string& which : {model(), dat()}) {
    Options given = real(which);
    given["--loss"] = "ce";
    const fs::path run = smoke(given);
    EXPECT_EQ(read_jsonl(run / "metrics.jsonl").size(), 3u);
    EXPECT_FALSE(fs::exists(run / "synthetic.safetensors"));
  }
  smoke_refused({{"--synthetic", "false"},
                 {"--in-features", kLeaveOut},
                 {"--out-features", kLeaveOut},
                 {"--max-layers", kLeaveOut},
                 {"--vocabulary", kLeaveOut}},
                2, "--synthetic false needs --model");
  Options wide = real(model());
  wide["--seq-len"] = "1000";
  smoke_refused(wide, 2, "knows positions up to 512");
}

TEST_F(Smoke, CheckpointsAndResume) {
  const Options saving = {{"--checkpoint-dir", file("saved")}};
  smoke(saving);
  EXPECT_TRUE(fs::exists(file("saved/checkpoint-00000003.safetensors"))) << "after the epoch";
  smoke_refused(saving, 2, "holds checkpoints of an earlier run");
  Options go_on = saving;
  go_on["--resume"] = "true";
  smoke(go_on);
  EXPECT_TRUE(contains(last_out_, "nothing was trained: the checkpoint is at step 3 of 3"))
      << last_out_;
  go_on["--epochs"] = "2";
  const auto second = read_jsonl(smoke(go_on) / "metrics.jsonl");
  ASSERT_EQ(second.size(), 6u);  // the first three are those of the run it continues
  const auto whole = read_jsonl(smoke({{"--epochs", "2"}}) / "metrics.jsonl");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second[i + 3]["step"], whole[i + 3]["step"]);
    EXPECT_EQ(second[i + 3]["loss"], whole[i + 3]["loss"]);
  }
  // Every step, when that is asked for.
  smoke({{"--checkpoint-dir", file("often")}, {"--save-every-steps", "1"}});
  EXPECT_TRUE(fs::exists(file("often/checkpoint-00000002.safetensors")));
  go_on["--seed"] = "5";
  smoke_refused(go_on, 2, "seed: ");
}

}  // namespace
}  // namespace nibble::test
