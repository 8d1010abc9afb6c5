// SPDX-License-Identifier: MIT
// nibble trace against the golden references, and each of its options.
#include <gtest/gtest.h>

#include "core/half.h"
#include "formats/safetensors.h"
#include "inspect/trace_io.h"
#include "support/cli.h"
#include "support/golden.h"
#include "support/toy_dir.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class Trace : public testing::Test {
 protected:
  std::string golden(const std::string& model) const { return (golden_dir() / model).string(); }
  std::string expected(const std::string& model) const {
    return (golden_dir() / model / "expected.safetensors").string();
  }
  // A run with more options; returns the file it wrote.
  std::unique_ptr<TensorSource> trace(const std::string& model, std::vector<std::string> more,
                                      const std::string& name = "out.safetensors") {
    std::vector<std::string> args = {"trace",         "--model",  golden(model), "--out",
                                     dir_.file(name), "--device", "cpu",         "--force"};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return open_safetensors(dir_.file(name));
  }
  std::vector<float> logits(const std::string& model, std::vector<std::string> more) {
    more.insert(more.end(), {"--input", expected(model)});
    return read_all<float>(*trace(model, more), "logits");
  }
  TemporaryDirectory dir_{"trace"};
};

TEST_F(Trace, GoldenLogitsAndLossInFp32) {
  for (const std::string model : {"qwen3_tied", "qwen3_untied", "qwen3_tied_nvfp4"}) {
    const auto out = trace(model, {"--input", expected(model), "--dump", "logits,loss",
                                   "--compute-dtype", "fp32", "--recipe", "bf16"});
    const auto want = open_safetensors(expected(model));
    EXPECT_EQ(out->at("logits").shape, want->at("logits").shape);
    EXPECT_LE(relative_l2(read_all<float>(*out, "logits"), read_all<float>(*want, "logits")), 5e-6)
        << model;
    EXPECT_EQ(out->at("loss").shape, std::vector<int64_t>{1});
    EXPECT_LE(relative_l2(read_all<float>(*out, "loss"), read_all<float>(*want, "loss")), 5e-6)
        << model;
    EXPECT_EQ(out->tensors().size(), 2u);
  }
}

TEST_F(Trace, GoldenLogitsOfThePredecessorsFile) {
  const auto out = trace("predecessor", {"--input", expected("predecessor")});
  const auto want = open_safetensors(expected("predecessor"));
  // NVFP4 weights, yet activations are left alone: auto means unquantised here.
  EXPECT_LE(relative_l2(read_all<float>(*out, "logits"), read_all<float>(*want, "logits")), 5e-6);
  EXPECT_EQ(out->find("loss"), nullptr);  // the file has no labels
}

TEST_F(Trace, GoldenLogitsThroughPackedWeights) {
  // These weights lie on the NVFP4 grid, so quantising them changes nothing.
  const auto want = open_safetensors(expected("qwen3_tied_nvfp4"));
  const auto got = logits("qwen3_tied_nvfp4",
                          {"--recipe", "nvfp4", "--head-recipe", "bf16", "--scale-rule", "absmax"});
  EXPECT_LE(relative_l2(got, read_all<float>(*want, "logits")), 5e-6);
}

TEST_F(Trace, Bf16ComputeIsCloseButNotEqual) {
  for (const std::string model : {"qwen3_tied", "qwen3_untied"}) {
    const auto want = read_all<float>(*open_safetensors(expected(model)), "logits");
    const auto got = logits(model, {"--compute-dtype", "bf16"});
    EXPECT_GE(cosine(got, want), 0.999);
    EXPECT_GT(relative_l2(got, want), 1e-4);
  }
}

TEST_F(Trace, RecipesAndActivationsChangeTheLogits) {
  const auto plain = logits("qwen3_tied", {"--recipe", "bf16"});
  const auto all = logits("qwen3_tied", {"--recipe", "nvfp4"});
  const auto body = logits("qwen3_tied", {"--recipe", "nvfp4", "--head-recipe", "bf16"});
  const auto head = logits("qwen3_tied", {"--head-recipe", "nvfp4"});
  EXPECT_GT(relative_l2(all, plain), 1e-3);
  EXPECT_GT(relative_l2(body, plain), 1e-3);
  EXPECT_GT(relative_l2(body, all), 1e-3);
  EXPECT_GT(relative_l2(head, plain), 1e-3);
  const auto int8 = logits("qwen3_tied", {"--recipe", "nvfp4", "--activations", "int8"});
  const auto w4a4 = logits("qwen3_tied", {"--recipe", "nvfp4", "--activations", "nvfp4"});
  EXPECT_GT(relative_l2(int8, all), 1e-4);
  EXPECT_GT(relative_l2(w4a4, all), relative_l2(int8, all));
  const auto absmax = logits("qwen3_tied", {"--recipe", "nvfp4", "--scale-rule", "absmax"});
  EXPECT_GT(relative_l2(absmax, all), 1e-3);
}

TEST_F(Trace, ThreadsChangeNothing) {
  const std::vector<std::string> in = {"--input", expected("qwen3_untied"), "--dump",
                                       "acts,logits"};
  auto args = in;
  args.insert(args.end(), {"--threads", "1"});
  trace("qwen3_untied", args, "one.safetensors");
  args.back() = "2";
  trace("qwen3_untied", args, "two.safetensors");
  const CliResult r = cli({"trace", "--compare", dir_.file("one.safetensors"),
                           dir_.file("two.safetensors"), "--tolerance", "0"});
  EXPECT_EQ(r.code, 0) << r.out;
}

TEST_F(Trace, ActsHoldEveryIntermediateInTheOrderOfTheRun) {
  const auto out =
      trace("qwen3_tied", {"--input", expected("qwen3_tied"), "--dump", "acts,logits"});
  EXPECT_EQ(out->at("acts.embed").shape, (std::vector<int64_t>{2, 24, 64}));
  EXPECT_EQ(out->at("acts.layers.1.attn_out").shape, (std::vector<int64_t>{2, 24, 64}));
  EXPECT_EQ(out->at("acts.layers.0.q").shape, (std::vector<int64_t>{2, 24, 4, 32}));
  EXPECT_EQ(out->at("acts.layers.0.ffn_act").shape, (std::vector<int64_t>{2, 24, 160}));
  EXPECT_EQ(out->find("loss"), nullptr);
  EXPECT_EQ(out->find("acts.logits"), nullptr);
  EXPECT_EQ(out->tensors().size(), 1u + 2 * 10 + 1 + 1);
  EXPECT_EQ(out->tensors().front().name, "acts.embed");
  EXPECT_EQ(out->tensors().back().name, "logits");
  EXPECT_EQ(out->metadata().at("compute_dtype"), "f32");
  // The embedding of the first token is a row of the table.
  const auto weights = open_tensor_source(golden("qwen3_tied"));
  const auto table = read_all<float>(*weights, "model.embed_tokens.weight");
  const auto ids = read_all<int64_t>(*open_safetensors(expected("qwen3_tied")), "input_ids");
  const auto embed = read_all<float>(*out, "acts.embed");
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(embed[i], table[size_t(ids[0]) * 64 + i]);
}

TEST_F(Trace, DumpChoosesWhatIsWritten) {
  const std::string in = expected("qwen3_tied");
  EXPECT_EQ(trace("qwen3_tied", {"--input", in, "--dump", "loss"})->tensors().size(), 1u);
  const auto by_default = trace("qwen3_tied", {"--input", in});
  EXPECT_TRUE(by_default->find("logits") && by_default->find("loss"));
  const auto fails = [&](const std::string& list, const std::string& message) {
    const CliResult r = cli({"trace", "--model", golden("qwen3_tied"), "--input", in, "--dump",
                             list, "--out", dir_.file("x.safetensors")});
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(contains(r.err, message)) << r.err;
    EXPECT_FALSE(fs::exists(dir_.file("x.safetensors")));
  };
  fails("logits,layers", "'layers' is none of logits, loss, acts, grads");
  const CliResult r =
      cli({"trace", "--model", golden("predecessor"), "--input", expected("predecessor"), "--dump",
           "loss", "--out", dir_.file("x.safetensors")});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(contains(r.err, "needs labels")) << r.err;
}

// Every gradient against the reference, through the command line (docs/numerics.md: 2e-5 in fp32).
TEST_F(Trace, GoldenGradients) {
  for (const std::string model : {"qwen3_tied", "qwen3_untied", "qwen3_tied_nvfp4"}) {
    std::vector<std::string> args = {"--input", expected(model), "--dump", "grads"};
    if (model == "qwen3_tied_nvfp4") {  // its weights lie on the grid; its head is not quantised
      args.insert(args.end(),
                  {"--recipe", "nvfp4", "--head-recipe", "bf16", "--scale-rule", "absmax"});
    }
    const auto out = trace(model, args);
    const auto want = open_safetensors(expected(model));
    size_t compared = 0;
    for (const TensorInfo& t : want->tensors()) {
      if (!t.name.starts_with("grad.")) continue;
      ASSERT_TRUE(out->find(t.name)) << t.name;
      EXPECT_EQ(out->at(t.name).shape, t.shape);
      EXPECT_LE(relative_l2(read_all<float>(*out, t.name), read_all<float>(*want, t.name)), 2e-5)
          << model << " " << t.name;
      ++compared;
    }
    EXPECT_EQ(compared, out->tensors().size());
    EXPECT_GE(compared, 24u);
  }
}

TEST_F(Trace, GradientsOfOtherArithmetic) {
  const std::string norm = "grad.model.norm.weight";
  const auto grad = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--input", expected("qwen3_tied"), "--dump", "grads"});
    return read_all<float>(*trace("qwen3_tied", more), norm);
  };
  const auto plain = grad({});
  for (const char* type : {"bf16", "fp16"}) {
    const auto rounded = grad({"--compute-dtype", type});
    EXPECT_GE(cosine(rounded, plain), 0.999) << type;
    EXPECT_GT(relative_l2(rounded, plain), 1e-5) << type;
    EXPECT_LT(relative_l2(rounded, plain), 0.05) << type;  // the scale of the loss is taken out
  }
  EXPECT_GT(relative_l2(grad({"--recipe", "nvfp4"}), plain), 1e-3);
  EXPECT_GT(relative_l2(grad({"--head-recipe", "nvfp4"}), plain), 1e-3);
  EXPECT_EQ(grad({"--threads", "1"}), grad({"--threads", "3"}));
  const auto fails = [&](std::vector<std::string> more, const std::string& message) {
    std::vector<std::string> args = {"trace", "--model", golden("qwen3_tied"),      "--dump",
                                     "grads", "--out",   dir_.file("x.safetensors")};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(contains(r.err, message)) << r.err;
  };
  fails({"--input-ids", "1,2,3"}, "--dump grads needs labels");
  fails({"--input", expected("qwen3_tied"), "--activations", "nvfp4"}, "leave --activations out");
}

TEST_F(Trace, PromptAndIdsAreInputsToo) {
  write_toy_directory(dir_.path() / "toy");
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "trace", "--model", dir_.file("toy"), "--out", dir_.file("toy.safetensors"), "--force"};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult r = cli(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return read_all<float>(*open_safetensors(dir_.file("toy.safetensors")), "logits");
  };
  // "hello" is one token of the mini tokenizer, 256 bytes + fourth merge; "!" is its byte.
  const auto text = run({"--prompt", "hello!"});
  EXPECT_EQ(text.size(), 2u * size_t(toy_chat_config().V));
  EXPECT_EQ(text, run({"--input-ids", "259,33"}));
  EXPECT_NE(text, run({"--input-ids", "33,259"}));
}

TEST_F(Trace, TopPrintsTheLikeliestTokens) {
  write_toy_directory(dir_.path() / "toy");
  const CliResult three =
      cli({"trace", "--model", dir_.file("toy"), "--prompt", "hello", "--top", "3"});
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(std::count(three.out.begin(), three.out.end(), '\n'), 3) << three.out;
  EXPECT_TRUE(contains(three.out, "logit"));
  EXPECT_TRUE(contains(three.out, "\"")) << "texts in quotes";
  const CliResult two = cli(
      {"trace", "--model", golden("qwen3_tied"), "--input", expected("qwen3_tied"), "--top", "2"});
  EXPECT_TRUE(contains(two.out, "sequence 1:")) << two.out;
  EXPECT_TRUE(contains(two.out, "loss 6.1434")) << two.out;
}

TEST(TopTokens, OrderTiesAndNan) {
  const std::vector<float> logits = {1, NAN, 3, 3, -1};
  const auto top = top_tokens(logits, 10);
  ASSERT_EQ(top.size(), 5u);
  EXPECT_EQ(top[0].id, 2);
  EXPECT_EQ(top[1].id, 3);
  EXPECT_EQ(top[2].id, 0);
  EXPECT_EQ(top[4].id, 1);
  double sum = 0;
  for (const TopToken& t : top) sum += t.probability;
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_EQ(top_tokens(logits, 1).size(), 1u);
  EXPECT_TRUE(top_tokens(logits, 0).empty());
}

TEST_F(Trace, CompareNamesTheFirstTensorOverTheTolerance) {
  const std::vector<std::string> in = {"--input", expected("qwen3_untied"), "--dump",
                                       "acts,logits"};
  trace("qwen3_untied", in, "a.safetensors");
  auto bf16 = in;
  bf16.insert(bf16.end(), {"--compute-dtype", "bf16"});
  trace("qwen3_untied", bf16, "b.safetensors");
  const auto compare = [&](const char* other, const char* tolerance) {
    return cli({"trace", "--compare", dir_.file("a.safetensors"), dir_.file(other), "--tolerance",
                tolerance});
  };
  const CliResult same = compare("a.safetensors", "0");
  EXPECT_EQ(same.code, 0);
  EXPECT_TRUE(contains(same.out, "PASS 33 tensors")) << same.out;
  const CliResult strict = compare("b.safetensors", "1e-9");
  EXPECT_EQ(strict.code, 1);
  EXPECT_TRUE(contains(strict.out, "the first is acts.embed")) << strict.out;
  EXPECT_EQ(compare("b.safetensors", "0.1").code, 0);
}

TEST_F(Trace, CompareFindsAChangedIntermediate) {
  // As an outside program might write it: in another order, with one tensor off.
  const std::vector<float> right = {1, 2}, wrong = {1, 2.5f};
  const auto write = [&](const char* name, std::span<const float> first,
                         std::span<const float> second) {
    const TraceTensor tensors[] = {{"logits", {2}, second},
                                   {"acts.layers.10.out", {2}, right},
                                   {"acts.layers.2.out", {2}, first}};
    write_trace(dir_.file(name), tensors, {});
  };
  write("r.safetensors", right, right);
  write("w.safetensors", wrong, wrong);
  const CliResult r =
      cli({"trace", "--compare", dir_.file("w.safetensors"), dir_.file("r.safetensors")});
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(contains(r.out, "FAIL 2 of 3")) << r.out;
  EXPECT_TRUE(contains(r.out, "the first is acts.layers.2.out")) << r.out;
  EXPECT_TRUE(contains(r.out, "max abs 0.5 at element 1")) << r.out;
}

TEST_F(Trace, MistakesAreAnswered) {
  const std::string model = golden("qwen3_tied"), in = expected("qwen3_tied");
  const std::string out = dir_.file("o.safetensors");
  const auto code = [](std::vector<std::string> args, const std::string& message) {
    args.insert(args.begin(), "trace");
    const CliResult r = cli(args);
    EXPECT_TRUE(contains(r.err, message)) << r.err;
    return r.code;
  };
  EXPECT_EQ(code({"--model", model, "--out", out}, "needs one input"), 2);
  EXPECT_EQ(code({"--model", model, "--input", in, "--input-ids", "1", "--out", out},
                 "exclude each other"),
            2);
  EXPECT_EQ(code({"--model", model, "--input", in}, "nothing to do"), 2);
  EXPECT_EQ(code({"--model", model, "--input", in, "--top", "1", "--dump", "loss"}, "--out"), 2);
  EXPECT_EQ(code({"--model", model, "--input-ids", "1", "--out", out, "stray"}, "--compare"), 2);
  EXPECT_EQ(code({"--model", model, "--input-ids", "384", "--out", out}, "token 384"), 2);
  EXPECT_EQ(code({"--model", model, "--prompt", "x", "--out", out}, "tokenizer"), 2);
  EXPECT_EQ(code({"--compare", in}, "second file is missing"), 2);
  EXPECT_EQ(code({"--compare", in, in, "--top", "1"}, "runs no model"), 2);
  EXPECT_EQ(code({"--compare", in, dir_.file("none.safetensors")}, "none.safetensors"), 3);
  EXPECT_EQ(
      code({"--model", model, "--input", in, "--out", out, "--device", "cuda"}, "--device cuda"),
      4);
  EXPECT_EQ(
      code({"--model", model, "--input", golden("qwen3_tied") + "/model.safetensors", "--out", out},
           "input_ids"),
      3);
}

TEST_F(Trace, InputsAreNeverOverwritten) {
  const std::string copy = dir_.file("in.safetensors");
  fs::copy_file(expected("qwen3_tied"), copy);
  const CliResult r =
      cli({"trace", "--model", golden("qwen3_tied"), "--input", copy, "--out", copy});
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_EQ(fs::file_size(copy), fs::file_size(expected("qwen3_tied")));
  write_toy_directory(dir_.path() / "toy");
  const std::string weights = dir_.file("toy/model.safetensors");
  const CliResult w =
      cli({"trace", "--model", dir_.file("toy"), "--input-ids", "1", "--out", weights});
  EXPECT_EQ(w.code, 2) << w.err;
}

TEST_F(Trace, LabelsOfAnotherShapeAreRefused) {
  const std::vector<int64_t> ids = {1, 2, 3, 4}, labels = {1, 2};
  std::vector<TensorInfo> infos(2);
  infos[0].name = "input_ids";
  infos[0].shape = {2, 2};
  infos[1].name = "labels";
  infos[1].shape = {1, 2};
  for (TensorInfo& i : infos) i.dtype = DType::i64;
  {
    SafetensorsWriter w(dir_.file("in.safetensors"), infos);
    w.append(std::as_bytes(std::span(ids)));
    w.append(std::as_bytes(std::span(labels)));
    w.finish();
  }
  EXPECT_THROW(read_trace_input(dir_.file("in.safetensors")), FormatError);
}

}  // namespace
}  // namespace nibble::test
