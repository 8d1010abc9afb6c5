// SPDX-License-Identifier: MIT
// nibble doctor: machines that are not there, judged; and this one.
#include "apps/doctor/doctor.h"

#include <nlohmann/json.hpp>

#include "apps/cli_run.h"
#include "core/shipped_files.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t(1) << 30;

TEST(Doctor, SaysWhatAnOldProcessorLacks) {
  EXPECT_EQ(judge_cpu({"new", 8, 8, "AVX3", {"AVX3", "AVX2"}}).verdict, Verdict::ok);
  const Finding old = judge_cpu({"old", 4, 2, "SSE2", {"SSE2"}});
  EXPECT_EQ(old.verdict, Verdict::note);
  EXPECT_TRUE(contains(old.text, "2 of 4 cores")) << old.text;
  EXPECT_TRUE(contains(old.text, "AVX2 or later")) << old.text;
}

TEST(Doctor, AFolderWithoutPermissionIsAProblemAndAFullDiskANote) {
  EXPECT_EQ(judge_disk({"/home/me", 100 * kGiB, true}).verdict, Verdict::ok);
  EXPECT_EQ(judge_disk({"/home/me", 1 * kGiB, true}).verdict, Verdict::note);
  const Finding f = judge_disk({"/usr", 100 * kGiB, false});
  EXPECT_EQ(f.verdict, Verdict::problem);
  EXPECT_NE(f.type, "");
}

TEST(Doctor, AnotherCharacterSetIsAProblemAtATerminalOnly) {
  EXPECT_EQ(judge_terminal({"UTF-8", true}).verdict, Verdict::ok);
  EXPECT_EQ(judge_terminal({"ANSI_X3.4-1968", false}).verdict, Verdict::note);
  const Finding f = judge_terminal({"ANSI_X3.4-1968", true});
  EXPECT_EQ(f.verdict, Verdict::problem);
  EXPECT_TRUE(contains(f.type, "UTF-8")) << f.type;
}

CudaSupport one_gpu() { return {{{0, "GPU", 9, 0, 80 * kGiB, false}}, "", "13.0", "12.8"}; }

TEST(Doctor, NoGpuIsNoProblemButOneThatCannotBeUsedIs) {
  const auto none = judge_gpus({{{}, "no driver", "", "12.8"}, {}, "", false});
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].verdict, Verdict::note);

  const auto no_driver = judge_gpus({{{}, "no driver", "", "12.8"}, {"0000:01:00.0"}, "", false});
  ASSERT_EQ(no_driver.size(), 1u);
  EXPECT_EQ(no_driver[0].verdict, Verdict::problem);
  EXPECT_TRUE(contains(no_driver[0].text, "0000:01:00.0")) << no_driver[0].text;
  EXPECT_TRUE(contains(no_driver[0].type, "nvidia-driver")) << no_driver[0].type;

  const auto hidden = judge_gpus({{{}, "none", "13.0", "12.8"}, {"0000:01:00.0"}, "", true});
  EXPECT_EQ(hidden[0].verdict, Verdict::note);

  const auto without_cuda =
      judge_gpus({{{}, "no CUDA backend", "", ""}, {"0000:01:00.0"}, "", false});
  EXPECT_EQ(without_cuda[0].verdict, Verdict::problem);
  EXPECT_TRUE(contains(without_cuda[0].type, "cuda-release")) << without_cuda[0].type;
}

TEST(Doctor, AMissingCublasIsAProblemWithThePackageOfThisToolkit) {
  const auto found = judge_gpus({one_gpu(), {}, "/usr/lib/libcublasLt.so.12", false});
  for (const Finding& f : found) EXPECT_EQ(f.verdict, Verdict::ok) << f.text;
  const auto missing = judge_gpus({one_gpu(), {}, "", false});
  EXPECT_EQ(missing.back().verdict, Verdict::problem);
  EXPECT_TRUE(contains(missing.back().type, "libcublas-12-8")) << missing.back().type;
}

TEST(Doctor, FindsTheLargestShapeThatFits) {
  DeviceReport d;
  EXPECT_EQ(largest_for_inference(d), nullptr);
  d.shapes.resize(3);
  d.shapes[0].shape = "small", d.shapes[1].shape = "large", d.shapes[2].shape = "larger";
  d.shapes[0].inference = d.shapes[0].training = d.shapes[1].inference = true;
  EXPECT_EQ(largest_for_inference(d)->shape, "large");
  EXPECT_EQ(largest_for_training(d)->shape, "small");
}

// Its figures are those of the command that plans.
TEST(Doctor, FiguresOfTrainingAreThoseOfPlan) {
  const TemporaryDirectory dir("doctor");
  replace_file(dir.file("config.json"), R"({"architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151936, "tie_word_embeddings": true,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "hidden_act": "silu",
    "max_position_embeddings": 40960})");
  const CliResult plan = cli({"plan", "--json", "--device", "cpu", "--seq-len",
                              std::to_string(kDoctorTokens), "--config", dir.file("config.json")});
  const DeviceReport cpu = device_reports({}).front();
  ASSERT_EQ(cpu.shapes.front().shape, "Qwen3-0.6B");
  bool same = false;
  const auto planned = nlohmann::json::parse(plan.out);
  for (const auto& p : planned["plans"]) {
    same = same || p["total_bytes"] == cpu.shapes.front().training_bytes;
  }
  EXPECT_TRUE(same) << cpu.shapes.front().training_bytes << " in " << plan.out;
  for (size_t i = 1; i < cpu.shapes.size(); ++i) {
    EXPECT_GT(cpu.shapes[i].inference_bytes, cpu.shapes[i - 1].inference_bytes);
  }
}

TEST(Doctor, TextAndJsonAgreeOnTheExitCode) {
  const CliResult text = cli({"doctor"}), json = cli({"doctor", "--json"});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.code, json.code);
  const auto j = nlohmann::json::parse(json.out);
  EXPECT_EQ(j["works"].get<bool>(), json.code == 0);
  EXPECT_EQ(contains(text.out, "Everything works."), text.code == 0);
  for (const auto& f : j["findings"]) {
    EXPECT_TRUE(f["verdict"] != "problem" || f.contains("type")) << f.dump();
  }
  EXPECT_EQ(j["devices"][0]["device"], "cpu");
  EXPECT_EQ(j["devices"][0]["shapes"].size(), 5u);
}

class Shipped : public testing::Test {
 protected:
  void put(const char* folder) {
    fs::create_directories(dir_.path() / folder);
    for (const char* f : {"config.json", "tokenizer.json", "mini.dat"}) {
      replace_file(dir_.path() / folder / f, "x");
    }
  }
  TemporaryDirectory dir_{"shipped"};
  fs::path program_ = dir_.path() / "bin/nibble";
};

TEST_F(Shipped, AModelIsFoundBesideTheProgramInstalledOrBuilt) {
  EXPECT_EQ(find_shipped_model("mini", program_), "");
  put("models/mini");
  EXPECT_EQ(find_shipped_model("mini", program_), dir_.path() / "models/mini");
  put("share/nibble/models/mini");
  EXPECT_EQ(find_shipped_model("mini", program_), dir_.path() / "share/nibble/models/mini");
  EXPECT_EQ(find_shipped_model("other", program_), "");
}

TEST_F(Shipped, ItsNameIsNoPath) {
  put("share/nibble/models/mini");
  for (const char* name : {"", ".", "..", "../models/mini", "x/mini", "/mini"}) {
    EXPECT_EQ(find_shipped_model(name, program_), "") << name;
  }
}

TEST_F(Shipped, MiniIsJudgedByWhereItIs) {
  EXPECT_EQ(judge_mini_model("/x/models/mini", {}).verdict, Verdict::ok);
  const Finding f = judge_mini_model("", {"/a/share/nibble", "/a"});
  EXPECT_EQ(f.verdict, Verdict::problem);
  EXPECT_TRUE(contains(f.text, "/a/share/nibble/models/mini")) << f.text;
}

}  // namespace
}  // namespace nibble::test
