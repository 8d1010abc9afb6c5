// SPDX-License-Identifier: MIT
// nibble train: from data to a model that runs, what goes in and what comes out. How it learns is
// in train_settings_test.cpp, mistakes and damage in train_errors_test.cpp, checkpoints in
// train_resume_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/train_support.h"
#include "formats/tensor_source.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Train : public TrainingTest {
 protected:
  // Bytes of one entry of what the last run exported.
  static std::vector<std::byte> entry(const fs::path& model, const std::string& name) {
    return entry_bytes(*open_tensor_source(model), name);
  }
  static std::string reply(const fs::path& model) {
    return cli_ok({"generate", "--model", model.string(), "--prompt", "hello", "--max-tokens", "4",
                   "--threads", "1", "--print-ids"});
  }
};

TEST_F(Train, ADirectoryBecomesADirectoryThatRuns) {
  const std::string out = file("trained");
  trained({{"--output", out}, {"--self-test", "true"}, {"--steps", "4"}});
  EXPECT_TRUE(contains(last_out_, out + ": 35 entries")) << last_out_;
  EXPECT_TRUE(contains(last_out_, "self-test: loss of the first sample ")) << last_out_;
  EXPECT_TRUE(contains(last_out_, "self-test: reply ")) << last_out_;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    EXPECT_EQ(file_bytes(fs::path(out) / name), file_bytes(fs::path(model()) / name));
  }
  EXPECT_FALSE(reply(out).empty());
  // Everything that can learn has moved: all 35 entries, norms included.
  const auto before = open_tensor_source(model()), after = open_tensor_source(out);
  for (const TensorInfo& t : before->tensors()) {
    EXPECT_NE(entry_bytes(*before, t.name), entry_bytes(*after, t.name)) << t.name;
  }
}

TEST_F(Train, ADatBecomesADatThatRuns) {
  const std::string out = file("trained.dat");
  trained({{"--model", dat()}, {"--output", out}, {"--self-test", "true"}, {"--lr", "1e-2"}});
  EXPECT_TRUE(contains(last_out_, "self-test: loss of the first sample ")) << last_out_;
  EXPECT_FALSE(reply(out).empty());
  const auto before = open_tensor_source(dat()), after = open_tensor_source(out);
  ASSERT_EQ(before->tensors().size(), after->tensors().size());
  for (size_t i = 0; i < before->tensors().size(); ++i) {
    const TensorInfo &a = before->tensors()[i], &b = after->tensors()[i];
    EXPECT_EQ(a.name, b.name);
    // Norms moved by less than their fp16 can tell, so they are fp32 now; all else is as it was.
    if (a.shape.size() == 1) {
      EXPECT_EQ(a.dtype, DType::f16) << a.name;
      EXPECT_EQ(b.dtype, DType::f32) << b.name;
      EXPECT_EQ(a.shape, b.shape) << a.name;
    } else {
      EXPECT_EQ(a.describe(), b.describe()) << a.name;
    }
    EXPECT_NE(entry_bytes(*before, a.name), entry_bytes(*after, b.name)) << a.name;
  }
}

TEST_F(Train, OneKindOfFileBecomesTheOther) {
  const std::string made = file("new/model.dat"), expanded = file("expanded");
  trained({{"--output", made}, {"--self-test", "true"}});
  EXPECT_TRUE(open_tensor_source(made)->find("model.layers.0.mlp.up_proj.weight.qdata"));
  EXPECT_FALSE(reply(made).empty());
  trained({{"--model", dat()}, {"--output", expanded}, {"--self-test", "true"}});
  EXPECT_TRUE(open_tensor_source(expanded)->find("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(reply(expanded).empty());
  const std::string one = file("one/model.safetensors");
  trained({{"--output", one}, {"--self-test", "true"}});
  EXPECT_EQ(file_bytes(one), exported({}));
}

TEST_F(Train, LrOfZeroCopiesTheFile) {
  EXPECT_TRUE(exported({{"--model", dat()}, {"--lr", "0"}}) == file_bytes(dat()));
  // A directory as nibble writes it (the toy's own file lacks the usual metadata).
  cli_ok({"convert", model(), file("copy"), "--quant", "none"});
  const std::string written = file_bytes(file("copy/model.safetensors"));
  for (const char* recipe : {"nvfp4", "bf16"}) {
    for (const char* mode : {"resident", "release", "remake"}) {
      EXPECT_TRUE(exported({{"--model", file("copy")},
                            {"--lr", "0"},
                            {"--recipe", recipe},
                            {"--memory-mode", mode}}) == written)
          << recipe << " " << mode;
    }
  }
  EXPECT_FALSE(exported({{"--model", file("copy")}}) == written);
}

// A file of the predecessor's, whose tokenizer is not ours to keep here.
TEST_F(Train, ThePredecessorsFile) {
  const std::string old = golden("predecessor/model-nvfp4.dat");
  const Options how = {{"--model", old},
                       {"--tokenizer", shared_->file("m/tokenizer.json")},
                       {"--self-test", "true"}};
  Options nothing = how;
  nothing["--lr"] = "0";
  EXPECT_TRUE(exported(nothing) == file_bytes(old));
  const fs::path learned = trained(how) / "model.dat";
  EXPECT_FALSE(file_bytes(learned) == file_bytes(old));
  EXPECT_FALSE(reply(learned).empty());
}

// As Train.WhoAmI.AndExportDat was called; what had no effect there is answered.
TEST_F(Train, ThePredecessorsCommandLine) {
  const Options whoami = {{"--model-dir", model()},
                          {"--input-dat", dat()},
                          {"--output-dat", file("whoami.dat")},
                          {"--train-data", pairs()},
                          {"--device", "cpu"},
                          {"--loss", "ce"},
                          {"--steps", "2"},
                          {"--lr", "1e-4"},
                          {"--train-last-layers", "0"},
                          {"--seq-len", "96"},
                          {"--step-chunk-rows", "32"},
                          {"--optimizer-state-mode", "nvfp4"},
                          {"--test-max-tokens", "12"},
                          {"--compute-dtype", "float32"},
                          {"--sample-mode", "random"},
                          {"--seed", "20260226"},
                          {"--grad-clip", "0.5"},
                          {"--log-every", "10"},
                          {"--runs-dir", file("runs")}};
  EXPECT_TRUE(contains(cli_ok(arguments("train", whoami, {})), "self-test: reply "));
  EXPECT_TRUE(fs::exists(file("whoami.dat")));
  // What is not needed any more is said and left out: the same file.
  const std::string usual = file_bytes(file("whoami.dat"));
  Options more = whoami;
  more["--output-dat"] = file("more/whoami.dat");
  for (const char* flag : {"--compact-each-step", "--use-packed-optimizer", "--offload-grad-to-cpu",
                           "--grad-ckpt-chunk"}) {
    more[flag] = "1";
  }
  testing::internal::CaptureStderr();
  const CliResult r = cli(arguments("train", more, {}));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(file_bytes(file("more/whoami.dat")) == usual);
  for (const char* part :
       {"--compact-each-step is not needed by train: ", "--memory-mode release",
        "--recompute block", "--use-packed-optimizer is not needed by train: "}) {
    EXPECT_TRUE(contains(log, part)) << part << " in " << log;
  }
  refused({{"--steps-per-epoch", "1"}}, 2, "accepted by smoke");
}

TEST_F(Train, UntieGivesTheHeadAMatrix) {
  const fs::path out = trained({{"--untie", "true"}, {"--self-test", "true"}}) / "model";
  const auto source = open_tensor_source(out);
  EXPECT_NE(entry_bytes(*source, "lm_head.weight"),
            entry_bytes(*source, "model.embed_tokens.weight"));
  const auto config = nlohmann::json::parse(read_text_file(out / "config.json"));
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_FALSE(reply(out).empty());
  // Its rate can be named now.
  const fs::path frozen = trained({{"--untie", "true"}, {"--lr-scale", "lm_head=0"}}) / "model";
  EXPECT_EQ(entry(frozen, "lm_head.weight"), entry(model(), "model.embed_tokens.weight"));
  // Beside the input the config is the input's and stays.
  const std::string config_before = file_bytes(fs::path(model()) / "config.json");
  const std::string beside = shared_->file("m/untied.safetensors");
  trained({{"--model", shared_->file("m/model.safetensors")},
           {"--untie", "true"},
           {"--output", beside},
           {"--force", "true"}});
  EXPECT_EQ(file_bytes(fs::path(model()) / "config.json"), config_before);
  fs::remove(beside);
}

// The export of every way to compute is sound: the file says what the trainer said.
TEST_F(Train, SelfTestOfEveryRecipe) {
  for (const Options& given :
       std::vector<Options>{{{"--recipe", "bf16"}},
                            {{"--head-recipe", "bf16"}},
                            {{"--recipe", "bf16"}, {"--head-recipe", "nvfp4"}},
                            {{"--compute-dtype", "bf16"}},
                            {{"--compute-dtype", "fp16"}},
                            {{"--loss", "scalar"}},
                            {{"--scale-rule", "torchao"}},
                            {{"--master-dtype", "fp32"}},
                            {{"--model", dat()}},
                            {{"--model", dat()}, {"--recipe", "bf16"}},
                            {{"--model", dat()}, {"--head-recipe", "bf16"}},
                            {{"--model", dat()}, {"--memory-mode", "C"}},
                            {{"--model", dat()}, {"--untie", "true"}}}) {
    Options more = {{"--self-test", "true"}, {"--test-max-tokens", "2"}, {"--lr", "1e-2"}};
    more.insert(given.begin(), given.end());
    SCOPED_TRACE(given.begin()->first + " " + given.rbegin()->second);
    trained(more);
    EXPECT_TRUE(contains(last_out_, "self-test: reply ")) << last_out_;
  }
}

TEST_F(Train, SelfTestOptions) {
  const auto test = [&](Options given) {
    given["--self-test"] = "true";
    given["--run-name"] = "test" + std::to_string(++runs_);
    return train(given);
  };
  const auto reply_of = [](const CliResult& r) {
    const size_t at = r.out.find("self-test: reply  ") + 18;
    return r.out.substr(at, r.out.find("\nrun folder") - at);
  };
  const CliResult usual = test({{"--test-max-tokens", "3"}});
  EXPECT_EQ(usual.code, 0) << usual.out;
  EXPECT_TRUE(contains(usual.out, "self-test: prompt <|im_start|>user\nhello<|im_end|>"))
      << usual.out;
  const std::string reply = reply_of(usual);
  EXPECT_GT(reply_of(test({{"--test-max-tokens", "12"}})).size(), reply.size());
  const CliResult asked = test({{"--test-prompt", "who?"}, {"--test-max-tokens", "3"}});
  EXPECT_TRUE(contains(asked.out, "self-test: prompt who?\n")) << asked.out;
  // What was learned by heart is said, and only that passes.
  const Options learn = {
      {"--train-data", write("one.tsv", "hello\tyes\n")}, {"--lr", "1e-2"}, {"--steps", "40"}};
  Options yes = learn;
  yes["--test-expect"] = "yes";
  const CliResult learned = test(yes);
  EXPECT_EQ(learned.code, 0) << learned.out;
  EXPECT_EQ(reply_of(learned), "yes") << "<|im_end|> was learned, too";
  Options no = learn;
  no["--test-expect"] = "no";
  no["--output"] = file("unloved");
  const CliResult failed = test(no);
  EXPECT_EQ(failed.code, 1);
  EXPECT_TRUE(contains(failed.out, "self-test: failed, the reply lacks 'no'")) << failed.out;
  EXPECT_TRUE(fs::exists(file("unloved/model.safetensors"))) << "the model is written all the same";
  const fs::path run = dir_.path() / "runs" / ("test" + std::to_string(runs_));
  const auto status = nlohmann::json::parse(read_text_file(run / "status.json"));
  EXPECT_EQ(status["state"], "failed");
  EXPECT_EQ(status["message"], "the self-test of the exported model failed: the reply lacks 'no'");
  auto twice = train_arguments({{"--self-test", "true"}, {"--test-expect", "a"}});
  twice.insert(twice.end(), {"--test-expect", "surely not this"});
  EXPECT_EQ(cli(twice).code, 1);
  refused({{"--test-prompt", "x"}}, 2, "which --self-test false switches off");
  refused({{"--test-expect", "x"}, {"--self-test", "true"}, {"--export", "false"}}, 2,
          "which --export false switches off");
}

TEST_F(Train, TheTokenizerOfTheRunGoesAlong) {
  // Elsewhere and under another name; another one lies beside the config.
  fs::create_directories(dir_.path() / "other");
  fs::copy(fs::path(model()) / "tokenizer.json", dir_.path() / "other/mini.json");
  fs::create_directories(dir_.path() / "bare");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::copy(fs::path(model()) / name, dir_.path() / "bare" / name);
  }
  write("bare/tokenizer.json", mini_tokenizer_text({{"a", "b"}}));
  const fs::path out = trained({{"--model", file("bare")},
                                {"--tokenizer", file("other/mini.json")},
                                {"--self-test", "true"}}) /
                       "model";
  EXPECT_EQ(file_bytes(out / "tokenizer.json"), file_bytes(file("other/mini.json")));
  EXPECT_FALSE(fs::exists(out / "mini.json"));
}

TEST_F(Train, NamingTheModel) {
  const std::string usual = exported({});
  EXPECT_TRUE(exported({{"--model", kLeaveOut}, {"--model-dir", model()}}) == usual);
  EXPECT_TRUE(exported({{"--model", kLeaveOut},
                        {"--weight", shared_->file("m/model.safetensors")}}) == usual);
  fs::create_directories(dir_.path() / "apart");
  fs::copy(shared_->file("m/model.safetensors"), file("apart/model.safetensors"));
  EXPECT_TRUE(exported({{"--model", file("apart")},
                        {"--config", shared_->file("m/config.json")},
                        {"--tokenizer", shared_->file("m/tokenizer.json")}}) == usual);
  // The predecessor's names for input and output.
  trained({{"--model", kLeaveOut}, {"--input-dat", dat()}, {"--output-dat", file("old.dat")}});
  EXPECT_TRUE(file_bytes(file("old.dat")) == exported({{"--model", dat()}}));
  refused({{"--model", kLeaveOut}}, 2, "--model");
}

TEST_F(Train, DataOptions) {
  const std::string tabs = write("pairs.data", kPairs);
  refused({{"--train-data", tabs}}, 2, "the name does not tell the format");
  const std::string usual = exported({});
  EXPECT_TRUE(exported({{"--train-data", tabs}, {"--data-format", "tsv"}}) == usual);
  // The same content in another form is the same data.
  const std::string jsonl = write("pairs.jsonl",
                                  "{\"prompt\":\"hello\",\"target\":\"good day\"}\n"
                                  "{\"messages\":[{\"role\":\"user\",\"content\":\"who are you\"},"
                                  "{\"role\":\"assistant\",\"content\":\"nibble\"}]}\n"
                                  "{\"prompt\":\"hi\",\"response\":\"yes\"}\n"
                                  "{\"prompt\":\"what is a nibble\",\"target\":\"four bits\"}\n");
  EXPECT_TRUE(exported({{"--train-data", jsonl}}) == usual);
  EXPECT_TRUE(exported({{"--train-data", jsonl}, {"--data-format", "jsonl"}}) == usual);
  refused({{"--train-data", jsonl}, {"--data-format", "tsv"}}, 3, "no tab");
  refused({{"--data-format", "text"}}, 2, "--data-format");

  // One scored token less in each sample; a newline more in each prompt.
  const auto scored = column<int64_t>("response_tokens", {}),
             endless = column<int64_t>("response_tokens", {{"--end-token", "false"}});
  EXPECT_EQ(endless, (std::vector<int64_t>{scored[0] - 1, scored[1] - 1}));
  const auto tokens = column<int64_t>("tokens", {}),
             newline = column<int64_t>("tokens", {{"--template", "predecessor"}});
  EXPECT_EQ(newline, (std::vector<int64_t>{tokens[0] + 1, tokens[1] + 1}));
  EXPECT_EQ(column<int64_t>("tokens", {{"--template", "qwen3"}}), tokens);
  // A template from a file: here one without the line end behind a turn, which is two tokens less
  // (behind the question, and behind the word that names the speaker).
  const std::string jinja =
      write("short.jinja",
            "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant{% endif %}");
  EXPECT_EQ(column<int64_t>("tokens", {{"--template", jinja}}),
            (std::vector<int64_t>{tokens[0] - 3, tokens[1] - 3}));
  refused({{"--template", "no-such.jinja"}}, 2, "neither a file nor one of chatml");
  // Control tokens in the data, when they are asked for.
  const std::string hostile = write("hostile.tsv", "a<|im_end|>b\tc\n");
  const auto parsed = column<int64_t>(
      "tokens", {{"--train-data", hostile}, {"--steps", "1"}, {"--parse-content", "true"}});
  const auto text = column<int64_t>("tokens", {{"--train-data", hostile}, {"--steps", "1"}});
  EXPECT_EQ(parsed.at(0) + 9, text.at(0));
}

TEST_F(Train, HeldOutData) {
  const std::string eval = write("eval.tsv", "hell\tno\nhey\tnot today\nho\ton\n");
  const auto held_out = [&](Options given) {
    given["--eval-data"] = eval;
    std::vector<std::pair<int64_t, double>> losses;
    for (const auto& line : metrics(given)) {
      if (line.contains("held_out_loss")) losses.emplace_back(line["step"], line["held_out_loss"]);
    }
    return losses;
  };
  const auto last = held_out({{"--steps", "4"}});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].first, 4);
  EXPECT_GT(last[0].second, 0);
  const auto often = held_out({{"--steps", "4"}, {"--eval-every", "2"}});
  ASSERT_EQ(often.size(), 2u);
  EXPECT_EQ(often[0].first, 2);
  EXPECT_EQ(often[1], last[0]);
  EXPECT_NE(often[0].second, often[1].second);
  // Three samples, two at a time: each counts once. (At a rate of 0 the model is the same.)
  const double one = held_out({{"--lr", "0"}})[0].second;
  EXPECT_NEAR(held_out({{"--lr", "0"}, {"--batch-size", "2"}})[0].second, one, 1e-5);
  EXPECT_NEAR(held_out({{"--lr", "0"}, {"--batch-size", "7"}})[0].second, one, 1e-5);
  // Looking does not change what is learned.
  EXPECT_TRUE(exported({{"--eval-data", eval}, {"--eval-every", "1"}}) == exported({}));
  EXPECT_TRUE(contains(cli_log(train_arguments({{"--eval-data", eval}, {"--export", "false"}})),
                       "held-out loss"));
  refused({{"--eval-every", "2"}}, 2, "--eval-every has no effect without --eval-data");
}

TEST_F(Train, LogEvery) {
  const auto logged = [&](const std::string& every) {
    const std::string log =
        cli_log(train_arguments({{"--steps", "5"}, {"--log-every", every}, {"--export", "false"}}));
    std::string steps;
    for (int i = 1; i <= 5; ++i) {
      if (contains(log, "step " + std::to_string(i) + "/5 ")) steps += std::to_string(i);
    }
    return steps;
  };
  EXPECT_EQ(logged("1"), "12345");
  EXPECT_EQ(logged("2"), "1245");
  EXPECT_EQ(logged("100"), "15");
  // What is left is written as everywhere else: hours, minutes, seconds.
  const std::string log = cli_log(train_arguments({{"--steps", "2"}, {"--export", "false"}}));
  EXPECT_TRUE(std::regex_search(log, std::regex("step 1/2 .*  0:00:[0-9][0-9] left\n"))) << log;
}

TEST_F(Train, TheRunsFolder) {
  const auto folder = dir_.path() / "records" / "mine";
  trained({});
  cli_ok(train_arguments({{"--runs-dir", file("records")}, {"--run-name", "mine"}}));
  for (const char* name : {"config.toml", "command.txt", "metrics.jsonl", "status.json",
                           "memory.json", "loss.svg", "lr.svg", "model/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(folder / name)) << name;
  }
  const auto status = nlohmann::json::parse(read_text_file(folder / "status.json"));
  EXPECT_EQ(status["state"], "finished");
  EXPECT_EQ(status["output"], (folder / "model").string());
  cli_ok(train_arguments({{"--runs-dir", file("records")}, {"--run-name", kLeaveOut}}));
  EXPECT_EQ(std::distance(fs::directory_iterator(file("records")), {}), 2);
  refused({{"--run-name", "a/b"}}, 2, "'a/b' cannot be the name of a run");
}

TEST_F(Train, ExportFalseWritesNoModel) {
  const fs::path run = trained({{"--export", "false"}});
  EXPECT_FALSE(fs::exists(run / "model"));
  EXPECT_FALSE(contains(last_out_, "entries"));
  refused({{"--export", "false"}, {"--output", file("x")}}, 2, "nothing is written");
}

TEST_F(Train, ForceReplaces) {
  const std::string out = file("out");
  trained({{"--output", out}});
  refused({{"--output", out}, {"--steps", "3"}}, 2,
          "is not empty: choose another name, or use --force");
  write("out/model-00002-of-00002.safetensors", "of an earlier model");
  trained({{"--output", out}, {"--steps", "3"}, {"--force", "true"}});
  EXPECT_TRUE(file_bytes(out + "/model.safetensors") == exported({{"--steps", "3"}}));
  EXPECT_FALSE(fs::exists(out + "/model-00002-of-00002.safetensors"));
  refused({{"--force", "true"}}, 2, "--force is about --output and --vram-report");
}

TEST_F(Train, VramReportHasThePredecessorsKeys) {
  for (const char* flag : {"--vram-report", "--train-step-vram-report"}) {
    const std::string report = file(std::string("reports/") + (flag + 2) + ".json");
    trained({{flag, report}, {"--export", "false"}});
    const auto j = nlohmann::json::parse(read_text_file(report));
    EXPECT_TRUE(j.contains("Pid") && j.contains("CreatedUtc"));
    std::vector<std::string> phases;
    std::vector<int64_t> steps;
    for (const auto& s : j["Samples"]) {
      for (const char* key : {"TimestampUtc", "Epoch", "StepInEpoch", "GlobalStep", "Phase",
                              "PidMemoryMiB", "TotalMemoryMiB"}) {
        EXPECT_TRUE(s.contains(key)) << key;
      }
      phases.push_back(s["Phase"]);
      steps.push_back(s["GlobalStep"]);
    }
    const std::vector<std::string> step = {"batch_ready", "zero_grad_done", "backward_done",
                                           "optimizer_step_done"};
    std::vector<std::string> want = {"start", "model_loaded"};
    for (int i = 0; i < 2; ++i) want.insert(want.end(), step.begin(), step.end());
    EXPECT_EQ(phases, want);
    EXPECT_EQ(steps, (std::vector<int64_t>{0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
  }
}

TEST_F(Train, RunConfigHasTheSameKeys) {
  const Options given = {{"--lr", "3e-3"},
                         {"--steps", "3"},
                         {"--seed", "18446744073709551615"},
                         {"--lr-scale", "embed_tokens=0.5"},
                         {"--head-recipe", "bf16"},
                         {"--weight-decay", "0.1"}};
  const fs::path run = trained(given);
  // What a run recorded repeats it.
  const std::string again =
      cli_ok({"train", "--run-config", (run / "config.toml").string(), "--run-name", "again"});
  EXPECT_TRUE(contains(again, "runs/again/model: 35 entries")) << again;
  EXPECT_TRUE(file_bytes(file("runs/again/model/model.safetensors")) ==
              file_bytes(run / "model/model.safetensors"));
  // The command line wins.
  cli_ok({"train", "--run-config", (run / "config.toml").string(), "--run-name", "other", "--lr",
          "1e-3"});
  EXPECT_FALSE(file_bytes(file("runs/other/model/model.safetensors")) ==
               file_bytes(run / "model/model.safetensors"));
  cli_fails({"train", "--run-config", write("bad.toml", "learning-rate = 1\n")}, 2,
            "--learning-rate");
  cli_fails({"pretrain", "--run-config", (run / "config.toml").string()}, 2, "'train'");
}

}  // namespace
}  // namespace nibble::test
