// SPDX-License-Identifier: MIT
// nibble train: batches, optimizer, arithmetic and memory, option by option.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/train_support.h"
#include "backends/cuda/cuda_backend.h"
#include "formats/tensor_source.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class TrainSettingsTest : public TrainingTest {
 protected:
  static std::vector<std::byte> entry(const fs::path& model, const std::string& name) {
    return entry_bytes(*open_tensor_source(model), name);
  }
};

TEST_F(TrainSettingsTest, StepsAndEpochs) {
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
  refused({{"--steps", kLeaveOut}, {"--epochs", "1e300"}}, 2, "--epochs 1e+300 would be");
}

TEST_F(TrainSettingsTest, BatchesAndAccumulation) {
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

TEST_F(TrainSettingsTest, SeqLenCutsFromTheLeft) {
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

TEST_F(TrainSettingsTest, SampleMode) {
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

TEST_F(TrainSettingsTest, SeedDecidesTheRounding) {
  const std::string once = exported({{"--seed", "7"}});
  EXPECT_TRUE(exported({{"--seed", "7"}}) == once);
  EXPECT_FALSE(exported({{"--seed", "8"}}) == once);
  EXPECT_FALSE(exported({{"--seed", "18446744073709551615"}}) == once);
  EXPECT_TRUE(exported({}) == exported({{"--seed", "20260226"}}));  // the predecessor's
}

TEST_F(TrainSettingsTest, LearningRates) {
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

TEST_F(TrainSettingsTest, WeightDecayIsOfMatricesUnlessAllDecay) {
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

TEST_F(TrainSettingsTest, GradClipLimitsTheNorm) {
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

TEST_F(TrainSettingsTest, AdamsConstants) {
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
  refused({{"--beta1", "1"}}, 2, "--beta1 must be below 1");  // divides by 1 - beta
  refused({{"--beta2", "1"}}, 2, "--beta2 must be below 1");
}

TEST_F(TrainSettingsTest, OptimizerStateModes) {
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
TEST_F(TrainSettingsTest, UpdateFromTheQuantisedCopyLearnsNothing) {
  const auto before = open_tensor_source(dat());
  const WeightIndex was(*before);
  const auto moved = [&](const std::string& from, const std::string& lr) {
    const fs::path run = trained({{"--model", dat()},
                                  {"--update-from", from},
                                  {"--lr", lr},
                                  {"--steps", "8"},
                                  {"--on-collapse", "ignore"}});
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

TEST_F(TrainSettingsTest, TypesOfMasterAndGradient) {
  const std::string usual = exported({});
  EXPECT_TRUE(exported({{"--master-dtype", "bfloat16"}, {"--grad-dtype", "bf16"}}) == usual);
  const std::string master = exported({{"--master-dtype", "fp32"}}),
                    gradient = exported({{"--grad-dtype", "fp32"}});
  EXPECT_FALSE(master == usual);
  EXPECT_FALSE(gradient == usual);
  EXPECT_TRUE(exported({{"--master-dtype", "float32"}}) == master);
  // As the predecessor's users type it: fp32 holds all of fp16.
  EXPECT_TRUE(exported({{"--master-dtype", "fp16"}}) == master);
  refused({{"--master-dtype", "fp8"}}, 2, "--master-dtype");
}

TEST_F(TrainSettingsTest, RoundingOfTheMaster) {
  EXPECT_TRUE(exported({{"--master-rounding", "stochastic"}}) == exported({}));
  EXPECT_FALSE(exported({{"--master-rounding", "nearest"}}) == exported({}));
  refused({{"--master-rounding", "nearest"}, {"--master-dtype", "fp32"}}, 2, "is about a bf16");
}

TEST_F(TrainSettingsTest, LrScaleFreezesAndScales) {
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

TEST_F(TrainSettingsTest, TrainLastLayersTrainsProjectionsOnly) {
  const auto before = open_tensor_source(model());
  const auto after = open_tensor_source(trained({{"--train-last-layers", "1"}}) / "model");
  for (const TensorInfo& t : before->tensors()) {
    const bool trains = contains(t.name, "layers.2.") && contains(t.name, "_proj");
    EXPECT_EQ(entry_bytes(*before, t.name) != entry_bytes(*after, t.name), trains) << t.name;
  }
  refused({{"--train-last-layers", "1"}, {"--lr-scale", "embed_tokens=2"}}, 2,
          "all of it is frozen already");
}

TEST_F(TrainSettingsTest, WhatMustNotChangeTheResult) {
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
                                                        {"--recompute", "mlp"},
                                                        {"--memory-mode", "D"},
                                                        {"--recompute", "off"},
                                                        {"--logits-mib", "1"},
                                                        {"--log-every", "1"}}) {
    EXPECT_TRUE(exported({{"--grad-clip", "0"}, {flag, value}}) == usual) << flag << " " << value;
  }
  if (!cuda_support().usable()) refused({{"--device", "cuda"}}, 4, "--device cuda");
}

// With a clip, released gradients are clipped by the norm of the step before.
TEST_F(TrainSettingsTest, MemoryModesShowInTheArenas) {
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
          "released gradients cannot be accumulated");
  refused({{"--memory-mode", "C"}, {"--accumulate", "2"}}, 2, "cannot be accumulated");
  const auto m = arenas({{"--recompute", "mlp"}}), d = arenas({{"--memory-mode", "D"}});
  EXPECT_LT(m.at("activations"), a.at("activations"));
  EXPECT_LT(r.at("activations"), m.at("activations"));
  EXPECT_GT(d.at("gradients"), b.at("gradients"));  // of two layers at a time
}

// Many scored tokens, so that a MiB does not hold their logits.
TEST_F(TrainSettingsTest, LogitsMibCutsTheVocabulary) {
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

TEST_F(TrainSettingsTest, ArithmeticOptionsChangeTheLoss) {
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

}  // namespace
}  // namespace nibble::test
