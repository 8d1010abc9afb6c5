// SPDX-License-Identifier: MIT
// nibble train: from data to a model that runs, and what each option changes. Mistakes and damage
// are in train_errors_test.cpp, checkpoints in train_resume_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "apps/command.h"
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
    EXPECT_EQ(a.describe(), b.describe());
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
  const std::vector<std::string> line = {"train",
                                         "--model-dir",
                                         model(),
                                         "--input-dat",
                                         dat(),
                                         "--output-dat",
                                         file("whoami.dat"),
                                         "--train-data",
                                         pairs(),
                                         "--device",
                                         "cpu",
                                         "--loss",
                                         "ce",
                                         "--steps",
                                         "2",
                                         "--lr",
                                         "1e-4",
                                         "--train-last-layers",
                                         "0",
                                         "--seq-len",
                                         "96",
                                         "--step-chunk-rows",
                                         "32",
                                         "--optimizer-state-mode",
                                         "nvfp4",
                                         "--test-max-tokens",
                                         "12",
                                         "--compute-dtype",
                                         "float32",
                                         "--sample-mode",
                                         "random",
                                         "--seed",
                                         "20260226",
                                         "--grad-clip",
                                         "0.5",
                                         "--log-every",
                                         "10",
                                         "--runs-dir",
                                         file("runs")};
  EXPECT_TRUE(contains(cli_ok(line), "self-test: reply "));
  EXPECT_TRUE(fs::exists(file("whoami.dat")));
  for (const auto& [flag, answer] : Options{{"--compact-each-step", "gone: "},
                                            {"--use-packed-optimizer", "gone: "},
                                            {"--offload-grad-to-cpu", "use --memory-mode release"},
                                            {"--grad-ckpt-chunk", "use --recompute on"},
                                            {"--steps-per-epoch", "accepted by smoke"}}) {
    refused({{flag, "1"}}, 2, answer);
  }
}

TEST_F(Train, StepsAndEpochs) {
  EXPECT_EQ(metrics({{"--steps", "3"}}).size(), 3u);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}}).size(), size_t(kSamples));  // one epoch
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--epochs", "2"}}).size(), 2u * kSamples);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--epochs", "0.5"}}).size(), 2u);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--epochs", "1.5"}, {"--batch-size", "2"}}).size(),
            3u);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--batch-size", "3"}}).size(), 2u);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--accumulate", "2"}}).size(), 2u);
  EXPECT_EQ(metrics({{"--steps", kLeaveOut}, {"--epochs", "0.001"}}).size(), 1u);
  refused({{"--epochs", "1"}}, 2, "--steps and --epochs both say how long");
  refused({{"--steps", "0"}}, 2, "--steps");
  refused({{"--steps", kLeaveOut}, {"--epochs", "0"}}, 2, "--epochs");
}

TEST_F(Train, BatchesAndAccumulation) {
  const auto tokens = column<int64_t>("tokens", {{"--steps", "4"}});
  const auto scored = column<int64_t>("response_tokens", {{"--steps", "4"}});
  const std::vector<int64_t> pairs_of = {tokens[0] + tokens[1], tokens[2] + tokens[3]};
  EXPECT_EQ(column<int64_t>("tokens", {{"--batch-size", "2"}}), pairs_of);
  EXPECT_EQ(column<int64_t>("tokens", {{"--accumulate", "2"}}), pairs_of);
  EXPECT_EQ(column<int64_t>("tokens", {{"--grad-accum", "2"}}), pairs_of);
  EXPECT_EQ(column<int64_t>("response_tokens", {{"--accumulate", "2"}}),
            (std::vector<int64_t>{scored[0] + scored[1], scored[2] + scored[3]}));
  // The same samples at once or one after the other: the same mean loss.
  const double together = first_loss({{"--batch-size", "2"}});
  EXPECT_NEAR(first_loss({{"--accumulate", "2"}}), together, 1e-5 * together);
  // "<|im_end|>" is scored and every letter of "good day" is.
  EXPECT_EQ(scored[0], 9);
}

TEST_F(Train, SeqLenCutsFromTheLeft) {
  const auto whole = column<int64_t>("tokens", {{"--steps", "4"}});
  const auto cut = column<int64_t>("tokens", {{"--steps", "4"}, {"--seq-len", "24"}});
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(cut[i], std::min<int64_t>(whole[i], 24));
  EXPECT_LT(cut[3], whole[3]);
  refused({{"--seq-len", "1"}}, 2, "--seq-len");
  // A window no position of the model exists for.
  std::string line;
  for (int i = 0; i < 700; ++i) line += "ab ";
  const std::string data = write("long.tsv", line + "\tyes\n");
  refused({{"--train-data", data}, {"--seq-len", "600"}}, 2, "knows positions up to 512");
  EXPECT_EQ(column<int64_t>("tokens", {{"--train-data", data}, {"--seq-len", "512"}})[0], 512);
}

TEST_F(Train, SampleMode) {
  const auto order = [&](const std::string& mode, const std::string& seed) {
    return column<int64_t>("tokens", {{"--steps", "8"}, {"--sample-mode", mode}, {"--seed", seed}});
  };
  const auto in_file = order("sequential", "1");
  EXPECT_TRUE(std::equal(in_file.begin(), in_file.begin() + 4, in_file.begin() + 4));
  EXPECT_EQ(order("sequential", "2"), in_file);
  // Shuffled, every sample once an epoch.
  bool shuffled = false, by_seed = false;
  const auto first = order("random", "1");
  for (const char* seed : {"1", "2", "3"}) {
    auto seen = order("random", seed);
    shuffled |= seen != in_file;
    by_seed |= seen != first;
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::sort(seen.begin() + 4 * epoch, seen.begin() + 4 * (epoch + 1));
    }
    auto sorted = in_file;
    std::sort(sorted.begin(), sorted.begin() + 4);
    std::sort(sorted.begin() + 4, sorted.end());
    EXPECT_EQ(seen, sorted);
  }
  EXPECT_TRUE(shuffled);
  EXPECT_TRUE(by_seed);
  EXPECT_EQ(column<int64_t>("tokens", {{"--steps", "8"}, {"--sample-mode", kLeaveOut}}).size(), 8u);
}

TEST_F(Train, SeedDecidesTheRounding) {
  const std::string once = exported({{"--seed", "7"}});
  EXPECT_TRUE(exported({{"--seed", "7"}}) == once);
  EXPECT_FALSE(exported({{"--seed", "8"}}) == once);
  EXPECT_FALSE(exported({{"--seed", "18446744073709551615"}}) == once);
  EXPECT_TRUE(exported({}) == exported({{"--seed", "20260226"}}));  // the predecessor's
}

TEST_F(Train, LearningRates) {
  const auto rates = [&](Options given) {
    given["--steps"] = "4";
    return column<double>("lr", given);
  };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  };
  near(rates({}), {1e-3, 1e-3, 1e-3, 1e-3});
  near(rates({{"--lr", "0.02"}}), {0.02, 0.02, 0.02, 0.02});
  near(rates({{"--warmup-steps", "4"}}), {0.25e-3, 0.5e-3, 0.75e-3, 1e-3});
  near(rates({{"--lr-schedule", "linear"}}), {0.75e-3, 0.5e-3, 0.25e-3, 0});
  near(rates({{"--lr-schedule", "linear"}, {"--final-lr-share", "0.2"}}),
       {0.8e-3, 0.6e-3, 0.4e-3, 0.2e-3});
  near(rates({{"--lr-schedule", "cosine"}, {"--warmup-steps", "2"}}), {0.5e-3, 1e-3, 0.5e-3, 0});
  EXPECT_FALSE(exported({{"--lr-schedule", "linear"}}) == exported({}));
  refused({{"--final-lr-share", "0.5"}}, 2, "--final-lr-share");
  refused({{"--final-lr-share", "1.5"}, {"--lr-schedule", "linear"}}, 2, "--final-lr-share");
  refused({{"--lr", "-1"}}, 2, "--lr");
  refused({{"--lr", "nan"}}, 2, "--lr");
}

TEST_F(Train, WeightDecayIsOfMatricesUnlessAllDecay) {
  const std::string norm = "model.layers.1.input_layernorm.weight",
                    matrix = "model.layers.1.mlp.up_proj.weight";
  const auto after = [&](Options given) {
    given["--steps"] = "1";
    const fs::path model = trained(given) / "model";
    return std::pair(entry(model, norm), entry(model, matrix));
  };
  const auto plain = after({}), decayed = after({{"--weight-decay", "5"}}),
             all = after({{"--weight-decay", "5"}, {"--decay-all", "true"}});
  EXPECT_EQ(plain.first, decayed.first);
  EXPECT_NE(plain.second, decayed.second);
  EXPECT_NE(plain.first, all.first);
  EXPECT_EQ(decayed.second, all.second);
  refused({{"--decay-all", "true"}}, 2, "--decay-all has no effect without --weight-decay");
}

TEST_F(Train, GradClipLimitsTheNorm) {
  // A large epsilon makes AdamW feel the size of a gradient.
  const auto with = [&](const std::string& clip) {
    return exported({{"--grad-clip", clip}, {"--eps", "0.1"}});
  };
  const std::string off = with("0");
  EXPECT_TRUE(with("1e6") == off);
  EXPECT_FALSE(with("0.01") == off);
  auto args = train_arguments({{"--grad-clip", "0.5"}, {"--export", "false"}});
  EXPECT_TRUE(contains(cli_log(args), " clipped to 0.5")) << "the log says so";
  EXPECT_GT(column<double>("grad_norm", {{"--grad-clip", "0.5"}})[0], 1);  // before clipping
}

TEST_F(Train, AdamsConstants) {
  const std::string usual = exported({{"--steps", "3"}});
  for (const auto& [flag, value] :
       Options{{"--beta1", "0.5"}, {"--beta2", "0.9"}, {"--eps", "1"}}) {
    EXPECT_FALSE(exported({{"--steps", "3"}, {flag, value}}) == usual) << flag;
  }
  EXPECT_TRUE(exported({{"--steps", "3"},
                        {"--beta1", "0.9"},
                        {"--beta2", "0.999"},
                        {"--eps", "1e-8"},
                        {"--weight-decay", "0"},
                        {"--grad-clip", "1"}}) == usual);
  refused({{"--eps", "0"}}, 2, "--eps");
  refused({{"--beta1", "1.1"}}, 2, "--beta1");
}

TEST_F(Train, OptimizerStateModes) {
  std::map<std::string, std::string> seen;
  for (const std::string mode : {"int8", "fp32", "bf16", "nvfp4", "int8-linear"}) {
    const std::string bytes = exported({{"--steps", "4"}, {"--optimizer-state-mode", mode}});
    EXPECT_TRUE(seen.emplace(bytes, mode).second) << mode << " is " << seen[bytes];
  }
  EXPECT_EQ(seen[exported({{"--steps", "4"}})], "int8");
  EXPECT_EQ(seen[exported({{"--steps", "4"}, {"--optimizer-state-mode", "8bit"}})], "int8");
  EXPECT_EQ(seen[exported({{"--steps", "4"}, {"--optimizer-state-mode", "8-bit"}})], "int8");
  EXPECT_EQ(seen[exported({{"--steps", "4"}, {"--optimizer-state-mode", "fp4"}})], "nvfp4");
  // They differ in what they need, too.
  const auto state_bytes = [&](const std::string& mode) {
    const auto j = nlohmann::json::parse(read_text_file(
        trained({{"--optimizer-state-mode", mode}, {"--export", "false"}}) / "memory.json"));
    for (const auto& a : j["Arenas"]) {
      if (a["name"] == "optimizer state") return a["bytes"].get<int64_t>();
    }
    return int64_t(0);
  };
  EXPECT_LT(state_bytes("nvfp4"), state_bytes("int8"));
  EXPECT_LT(state_bytes("int8"), state_bytes("bf16"));
  EXPECT_LT(state_bytes("bf16"), state_bytes("fp32"));
}

// The predecessor's mistake on purpose: at a usual rate no 4-bit weight ever moves.
TEST_F(Train, UpdateFromTheQuantisedCopyLearnsNothing) {
  const auto before = open_tensor_source(dat());
  const WeightIndex was(*before);
  const auto moved = [&](const std::string& from, const std::string& lr) {
    const fs::path run =
        trained({{"--model", dat()}, {"--update-from", from}, {"--lr", lr}, {"--steps", "8"}});
    const auto after = open_tensor_source(run / "model.dat");
    const WeightIndex is(*after);
    int64_t matrices = 0;  // as values: a zero may change its sign
    for (const LogicalTensor& t : was.tensors()) {
      matrices += t.packed() && values(was, t.name) != values(is, t.name);
    }
    return matrices;
  };
  EXPECT_EQ(moved("quantised", "1e-4"), 0);
  EXPECT_GT(moved("master", "1e-4"), 0);
  EXPECT_GT(moved("quantised", "1"), 0);
  refused({{"--update-from", "quantised"}, {"--recipe", "bf16"}}, 2, "no 4-bit copy");
  refused({{"--update-from", "quantised"}, {"--memory-mode", "remake"}}, 2, "remake has none");
}

TEST_F(Train, TypesOfMasterAndGradient) {
  const std::string usual = exported({});
  EXPECT_TRUE(exported({{"--master-dtype", "bfloat16"}, {"--grad-dtype", "bf16"}}) == usual);
  const std::string master = exported({{"--master-dtype", "fp32"}}),
                    gradient = exported({{"--grad-dtype", "fp32"}});
  EXPECT_FALSE(master == usual);
  EXPECT_FALSE(gradient == usual);
  EXPECT_TRUE(exported({{"--master-dtype", "float32"}}) == master);
  refused({{"--master-dtype", "fp16"}}, 2, "--master-dtype");
}

TEST_F(Train, LrScaleFreezesAndScales) {
  const auto before = open_tensor_source(model());
  const auto frozen = [&](const Options& given) {
    const auto after = open_tensor_source(trained(given) / "model");
    std::vector<std::string> names;
    for (const TensorInfo& t : before->tensors()) {
      if (entry_bytes(*before, t.name) == entry_bytes(*after, t.name)) names.push_back(t.name);
    }
    return names;
  };
  EXPECT_TRUE(frozen({}).empty());
  EXPECT_EQ(frozen({{"--lr-scale", "embed_tokens=0"}}),
            std::vector<std::string>{"model.embed_tokens.weight"});
  const auto norms =
      frozen({{"--lr-scale", "layers.1.self_attn.q_norm=0,layers.1.self_attn.k_norm=0"}});
  EXPECT_EQ(norms.size(), 2u);
  const auto layers = frozen({{"--lr-scale", "layers.0-1=0"}});
  EXPECT_EQ(layers.size(), 22u);
  for (const std::string& name : layers) EXPECT_FALSE(contains(name, "layers.2")) << name;
  EXPECT_FALSE(exported({{"--lr-scale", "embed_tokens=0.5"}}) == exported({}));
  EXPECT_TRUE(exported({{"--lr-scale", "embed_tokens=1"}}) == exported({}));
  refused({{"--lr-scale", "embed_token=0"}}, 2,
          "--lr-scale embed_token: no parameter has that name");
  refused({{"--lr-scale", "lm_head=5"}}, 2, "name embed_tokens, or train two with --untie");
  refused({{"--lr-scale", "norm"}}, 2, "'norm' is not NAME=FACTOR");
  refused({{"--lr-scale", "model=0"}}, 2, "every parameter is frozen");
}

TEST_F(Train, TrainLastLayersTrainsProjectionsOnly) {
  const auto before = open_tensor_source(model());
  const auto after = open_tensor_source(trained({{"--train-last-layers", "1"}}) / "model");
  for (const TensorInfo& t : before->tensors()) {
    const bool trains = contains(t.name, "layers.2.") && contains(t.name, "_proj");
    EXPECT_EQ(entry_bytes(*before, t.name) != entry_bytes(*after, t.name), trains) << t.name;
  }
  refused({{"--train-last-layers", "4"}}, 2, "the model has 3 layers");
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

TEST_F(Train, WhatMustNotChangeTheResult) {
  const std::string usual = exported({{"--grad-clip", "0"}});
  for (const auto& [flag, value] :
       std::vector<std::pair<std::string, std::string>>{{"--step-chunk-rows", "1"},
                                                        {"--step-chunk-rows", "7"},
                                                        {"--optimizer-step-chunk-rows", "32"},
                                                        {"--threads", "3"},
                                                        {"--device", "cpu"},
                                                        {"--memory-mode", "resident"},
                                                        {"--memory-mode", "A"},
                                                        {"--memory-mode", "release"},
                                                        {"--memory-mode", "B"},
                                                        {"--memory-mode", "remake"},
                                                        {"--memory-mode", "C"},
                                                        {"--recompute", "on"},
                                                        {"--recompute", "true"},
                                                        {"--recompute", "off"},
                                                        {"--logits-mib", "1"},
                                                        {"--log-every", "1"}}) {
    EXPECT_TRUE(exported({{"--grad-clip", "0"}, {flag, value}}) == usual) << flag << " " << value;
  }
  refused({{"--device", "cuda"}}, 4, "no CUDA backend");
}

// With a clip, released gradients are clipped by the norm of the step before.
TEST_F(Train, MemoryModesShowInTheArenas) {
  const auto arenas = [&](const Options& given) {
    Options more = {{"--export", "false"}};
    more.insert(given.begin(), given.end());
    const auto j = nlohmann::json::parse(read_text_file(trained(more) / "memory.json"));
    std::map<std::string, int64_t> bytes;
    for (const auto& a : j["Arenas"]) {
      EXPECT_LE(a["peak_bytes"], a["bytes"]) << a;
      bytes[a["name"]] = a["bytes"];
    }
    return bytes;
  };
  const auto a = arenas({{"--memory-mode", "A"}}), b = arenas({{"--memory-mode", "B"}}),
             c = arenas({{"--memory-mode", "C"}}), r = arenas({{"--recompute", "on"}});
  EXPECT_EQ(a.size(), 5u);
  EXPECT_LT(b.at("gradients"), a.at("gradients"));
  EXPECT_EQ(b.at("NVFP4 weights"), a.at("NVFP4 weights"));
  EXPECT_LT(c.at("NVFP4 weights"), a.at("NVFP4 weights"));
  EXPECT_EQ(c.at("gradients"), b.at("gradients"));
  EXPECT_LT(r.at("activations"), a.at("activations"));
  EXPECT_EQ(arenas({}), a);  // what fits is the fastest
  refused({{"--memory-mode", "release"}, {"--accumulate", "2"}}, 2,
          "--memory-mode release: released gradients cannot be accumulated");
  refused({{"--memory-mode", "C"}, {"--accumulate", "2"}}, 2, "--memory-mode remake");
}

// Many scored tokens, so that a MiB does not hold their logits.
TEST_F(Train, LogitsMibCutsTheVocabulary) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "hi\t" + std::string(55, char('a' + i)) + "\n";
  const Options data = {{"--train-data", write("many.tsv", lines)}, {"--batch-size", "20"}};
  const auto run = [&](const std::string& mib) {
    Options given = data;
    given["--logits-mib"] = mib;
    given["--export"] = "false";
    const fs::path folder = trained(given);
    const auto j = nlohmann::json::parse(read_text_file(folder / "memory.json"));
    return std::pair(read_jsonl(folder / "metrics.jsonl")[0]["loss"].get<double>(),
                     j["Arenas"][4]["bytes"].get<int64_t>());
  };
  const auto cut = run("1"), whole = run("64");
  EXPECT_NEAR(cut.first, whole.first, 1e-5);
  EXPECT_LT(cut.second, whole.second);
  refused({{"--logits-mib", "0"}}, 2, "--logits-mib");
}

TEST_F(Train, ArithmeticOptionsChangeTheLoss) {
  const double usual = first_loss({});
  std::map<double, std::string> seen = {{usual, "fp32, nvfp4"}};
  for (const auto& [flag, value] :
       std::vector<std::pair<std::string, std::string>>{{"--compute-dtype", "bf16"},
                                                        {"--compute-dtype", "fp16"},
                                                        {"--recipe", "bf16"},
                                                        {"--head-recipe", "bf16"},
                                                        {"--scale-rule", "absmax"},
                                                        {"--scale-rule", "search"},
                                                        {"--loss", "scalar"}}) {
    const double loss = first_loss({{flag, value}});
    EXPECT_TRUE(seen.emplace(loss, value).second) << value << " is as " << seen[loss];
    if (flag != "--loss") {
      EXPECT_NEAR(loss, usual, 0.35 * usual) << value;
    }
  }
  EXPECT_EQ(first_loss({{"--compute-dtype", "float32"}}), usual);
  EXPECT_EQ(first_loss({{"--dtype", "auto"}}), usual);
  EXPECT_EQ(first_loss({{"--scale-rule", "four-over-six"}}), usual);
  EXPECT_EQ(first_loss({{"--head-recipe", "nvfp4"}}), usual);
  for (const char* name : {"ce", "cross-entropy", "token-ce"}) {
    EXPECT_EQ(first_loss({{"--loss", name}}), usual);
  }
  const double scalar = first_loss({{"--loss", "scalar"}});
  for (const char* name : {"l1", "scalar-l1", "scalar"}) {
    EXPECT_EQ(first_loss({{"--loss-mode", name}}), scalar);
  }
  refused({{"--loss", "mse"}}, 2, "--loss");
  // Gradients too small or large for fp16 are scaled.
  EXPECT_GT(column<double>("loss_scale", {{"--compute-dtype", "fp16"}})[0], 1);
  EXPECT_EQ(column<double>("loss_scale", {})[0], 1);
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
  write("bare/tokenizer.json", mini_tokenizer({{"a", "b"}}).dump());
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
  refused({{"--force", "true"}}, 2, "--force has no effect without --output");
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
