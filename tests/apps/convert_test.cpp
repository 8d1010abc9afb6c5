// SPDX-License-Identifier: MIT
// nibble convert on the golden models: every container to every other, and every option.
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/cli_run.h"
#include "formats/dat.h"
#include "formats/safetensors.h"

namespace nibble::test {
namespace {

class Convert : public testing::Test {
 protected:
  std::string to(const std::string& in, const std::string& name,
                 std::vector<std::string> more = {}) {
    const std::string out = dir_.file(name);
    more.insert(more.begin(), {"convert", in, out});
    report_ = cli_ok(more);
    return out;
  }
  void fails(const std::string& in, const std::string& name, std::vector<std::string> more,
             int code, const std::string& part) {
    more.insert(more.begin(), {"convert", in, dir_.file(name)});
    cli_fails(more, code, part);
  }
  // One small safetensors file.
  std::string tensor_file(const std::string& name, const std::vector<int64_t>& shape,
                          const std::vector<float>& x) {
    TensorInfo info;
    info.name = name;
    info.shape = shape;
    const std::string path = dir_.file("t.safetensors");
    SafetensorsWriter w(path, {info});
    w.append(std::as_bytes(std::span(x)));
    w.finish();
    return path;
  }
  TemporaryDirectory dir_{"convert"};
  std::string report_;
  const std::string tied_ = golden("qwen3_tied"), untied_ = golden("qwen3_untied"),
                    predecessor_ = golden("predecessor/model-nvfp4.dat");
};

void expect_equal_values(const std::string& a, const std::string& b) {
  const auto sa = open_tensor_source(a), sb = open_tensor_source(b);
  const WeightIndex ia(*sa), ib(*sb);
  ASSERT_EQ(ia.tensors().size(), ib.tensors().size());
  for (const LogicalTensor& t : ia.tensors()) {
    EXPECT_EQ(values(ia, t.name), values(ib, t.name)) << t.name;
  }
}

TEST_F(Convert, EveryContainerToEveryOther) {
  for (const std::string& in : {tied_, untied_, golden("qwen3_tied_nvfp4"), predecessor_}) {
    const auto source = open_tensor_source(in);
    const WeightIndex exact(*source);
    for (const char* quant : {"none", "nvfp4"}) {
      for (const char* name : {"x.dat", "x.safetensors", "hf"}) {
        const std::string out = to(in, name, {"--quant", quant, "--force"});
        EXPECT_EQ(cli({"inspect", out}).code, 0);
        const auto made = open_tensor_source(out);
        const WeightIndex index(*made);
        for (const LogicalTensor& t : index.tensors()) {
          const LogicalTensor* from = exact.find(t.name);
          if (!from) from = exact.find("model.embed_tokens.weight");
          const std::vector<float> x = values(exact, from->name), y = values(index, t.name);
          // NVFP4 of Gaussian values is off by 9 %, an fp16 by 2^-11 at most.
          const bool quantised = t.packed() && !from->packed();
          const double bound = quantised ? 0.12 : from->packed() ? 0 : 0x1p-11;
          EXPECT_LE(relative_l2(y, x), bound) << in << " " << out << " " << t.name;
        }
        std::filesystem::remove_all(out);
      }
    }
  }
}

TEST_F(Convert, TiedModelsGetTheirHeadInADat) {
  const auto raw = open_tensor_source(to(tied_, "raw.dat", {"--quant", "none"}));
  EXPECT_EQ(raw->tensors().size(), 25u);
  EXPECT_EQ(raw->tensors().back().name, "lm_head.weight");
  EXPECT_EQ(raw->tensors().front().name, "model.embed_tokens.weight");  // state-dict order
  EXPECT_EQ(raw->at("model.norm.weight").dat_code, 5);
  const auto packed = open_tensor_source(to(tied_, "p.dat", {"--quant", "nvfp4"}));
  EXPECT_EQ(packed->tensors().size(), 40u);
  EXPECT_EQ(packed->at("lm_head.weight.qdata").dat_code, 0);
  EXPECT_EQ(packed->at("lm_head.weight.scale").dat_code, 101);
  EXPECT_TRUE(contains(report_, "40 entries")) << report_;
  EXPECT_TRUE(contains(report_, "relative RMS")) << report_;
}

TEST_F(Convert, PredecessorThroughADirectoryAndBack) {
  // Expanded and quantised again by the rule that made it: the same values.
  to(predecessor_, "hf", {"--quant", "none"});
  EXPECT_EQ(open_tensor_source(dir_.file("hf"))->find("lm_head.weight"), nullptr);
  EXPECT_TRUE(contains(report_, "a tied model stores it once")) << report_;
  const std::string back =
      to(dir_.file("hf"), "back.dat", {"--quant", "nvfp4", "--scale-rule", "torchao"});
  {
    const auto sa = open_tensor_source(predecessor_), sb = open_tensor_source(back);
    const WeightIndex a(*sa), b(*sb);
    ASSERT_EQ(a.tensors().size(), b.tensors().size());
    for (const LogicalTensor& t : a.tensors()) {
      if (t.name == "lm_head.weight") continue;
      EXPECT_EQ(values(a, t.name), values(b, t.name)) << t.name;
    }
    // The head is made from the embedding again, which the file holds rounded to fp16: rounding
    // that to bf16 differs now and then, and a few values fall to the next code.
    const auto x = values(a, "lm_head.weight"), y = values(b, "lm_head.weight");
    int64_t differ = 0;
    for (size_t i = 0; i < x.size(); ++i) differ += x[i] != y[i];
    EXPECT_LE(differ, int64_t(x.size()) / 100);
  }
  // Kept packed: the same bytes, entry by entry.
  to(predecessor_, "hf4", {"--quant", "nvfp4"});
  const auto again = open_tensor_source(to(dir_.file("hf4"), "again.dat", {"--quant", "nvfp4"}));
  const auto original = open_tensor_source(predecessor_);
  ASSERT_EQ(again->tensors().size(), original->tensors().size());
  for (const TensorInfo& t : original->tensors()) {
    EXPECT_EQ(entry_bytes(*again, t.name), entry_bytes(*original, t.name)) << t.name;
    EXPECT_EQ(again->at(t.name).dat_code, t.dat_code) << t.name;
  }
}

TEST_F(Convert, DatToDatKeepsTheFile) {
  const std::string copy = to(predecessor_, "copy.dat", {"--quant", "nvfp4"});
  EXPECT_EQ(file_bytes(copy), file_bytes(predecessor_));
  const std::string raw = to(tied_, "raw.dat", {"--quant", "none", "--dtype", "bf16"});
  const auto again = open_tensor_source(to(raw, "raw2.dat", {"--quant", "none"}));
  EXPECT_EQ(file_bytes(dir_.file("raw2.dat")), file_bytes(raw));
  EXPECT_EQ(again->at("model.norm.weight").dat_code, 15);
}

TEST_F(Convert, RawDatThroughADirectoryAndBack) {
  const std::string raw = to(tied_, "raw.dat", {"--quant", "none"});
  to(raw, "hf", {"--quant", "none", "--config", golden("qwen3_tied/config.json")});
  EXPECT_EQ(open_tensor_source(dir_.file("hf"))->tensors().size(), 24u);
  const std::string back = to(dir_.file("hf"), "back.dat", {"--quant", "none"});
  EXPECT_EQ(file_bytes(back), file_bytes(raw));
}

TEST_F(Convert, AHeadTrainedApartIsKeptAndSaid) {
  const std::string dat = to(untied_, "u.dat", {"--quant", "none"});
  auto tied = nlohmann::json::parse(read_text_file(golden("qwen3_untied/config.json")));
  tied["tie_word_embeddings"] = true;
  const std::string tied_config = dir_.file("tied.json");
  replace_file(tied_config, tied.dump());
  to(dat, "hf", {"--quant", "none", "--config", tied_config});
  EXPECT_TRUE(contains(report_, "is not the embedding")) << report_;
  EXPECT_NE(open_tensor_source(dir_.file("hf"))->find("lm_head.weight"), nullptr);
  const auto config = nlohmann::json::parse(read_text_file(dir_.file("hf/config.json")));
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  EXPECT_EQ(config.at("hidden_size"), tied.at("hidden_size"));
}

TEST_F(Convert, UntiedWithoutAHeadIsAnError) {
  fails(tied_, "x.dat", {"--quant", "none", "--config", golden("qwen3_untied/config.json")}, 3,
        "lm_head.weight");
}

TEST_F(Convert, ScaleRulesAgainstTheGoldenBytes) {
  const auto made = open_tensor_source(
      to(golden("qwen3_tied_nvfp4"), "x.dat", {"--quant", "nvfp4", "--scale-rule", "absmax"}));
  const auto expected = open_tensor_source(golden("qwen3_tied_nvfp4/expected.safetensors"));
  int compared = 0;
  for (const TensorInfo& t : expected->tensors()) {
    if (!t.name.ends_with(".qdata") && !t.name.ends_with(".scale")) continue;
    EXPECT_EQ(entry_bytes(*made, t.name), entry_bytes(*expected, t.name)) << t.name;
    ++compared;
  }
  EXPECT_EQ(compared, 28);
  std::vector<std::string> files;
  for (const char* rule : {"four-over-six", "absmax", "search", "torchao"}) {
    files.push_back(file_bytes(
        to(tied_, std::string(rule) + ".dat", {"--quant", "nvfp4", "--scale-rule", rule})));
    for (size_t i = 0; i + 1 < files.size(); ++i) EXPECT_NE(files[i], files.back()) << rule;
  }
}

TEST_F(Convert, TwoLevelScales) {
  const std::string two = to(tied_, "two.dat", {"--quant", "nvfp4", "--scales", "two-level"});
  const auto source = open_tensor_source(two);
  EXPECT_EQ(source->tensors().size(), 55u);
  const auto& tensors = source->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].name.ends_with(".global_scale")) continue;
    EXPECT_TRUE(tensors[i - 1].name.ends_with(".scale"));
    EXPECT_EQ(tensors[i].dtype, DType::f32);
    EXPECT_EQ(tensors[i].shape, std::vector<int64_t>{1});
  }
  // Expanding needs fp32; an explicit type rounds and says so.
  const std::string wide = to(two, "wide.safetensors", {"--quant", "none"});
  EXPECT_EQ(open_tensor_source(wide)->at("lm_head.weight").dtype, DType::f32);
  expect_equal_values(two, wide);
  to(two, "narrow.safetensors", {"--quant", "none", "--dtype", "bf16"});
  EXPECT_TRUE(contains(report_, "values were rounded")) << report_;
  EXPECT_EQ(file_bytes(to(two, "copy.dat", {"--quant", "nvfp4"})), file_bytes(two));
  fails(tied_, "no.dat", {"--quant", "nvfp4", "--scales", "two-level", "--scale-rule", "torchao"},
        2, "single-level");
}

TEST_F(Convert, QuantizeByName) {
  const auto some = open_tensor_source(
      to(tied_, "some.dat", {"--quant", "nvfp4", "--quantize", "layers\\.0.*(gate|up)_proj"}));
  EXPECT_EQ(some->tensors().size(), 27u);
  EXPECT_NE(some->find("model.layers.0.mlp.up_proj.weight.qdata"), nullptr);
  EXPECT_NE(some->find("model.layers.1.mlp.up_proj.weight"), nullptr);
  fails(tied_, "x.dat", {"--quant", "nvfp4", "--quantize", "nothing"}, 2, "matches no");
  fails(tied_, "x.dat", {"--quant", "nvfp4", "--quantize", "("}, 2, "not a regular expression");
  fails(tied_, "x.dat", {"--quant", "none", "--quantize", "a"}, 2, "--quantize");
  fails(tied_, "x.dat", {"--quant", "none", "--scale-rule", "absmax"}, 2, "--scale-rule");
}

TEST_F(Convert, BareSafetensorsGoByName) {
  const std::vector<float> x(32 * 48, 0.5f);
  const std::string in = tensor_file("a.q_proj.weight", {32, 48}, x);
  const auto out = open_tensor_source(to(in, "o.safetensors", {"--quant", "nvfp4"}));
  EXPECT_EQ(out->at("a.q_proj.weight.qdata").shape, (std::vector<int64_t>{32, 24}));
  EXPECT_EQ(out->at("a.q_proj.weight.scale").shape, (std::vector<int64_t>{32, 3}));
  EXPECT_EQ(out->at("a.q_proj.weight.scale").dtype, DType::f8_e4m3);
  fails(in, "hf", {"--quant", "none"}, 3, "--config");
}

TEST_F(Convert, WhatCannotBeConverted) {
  fails(tensor_file("a.q_proj.weight", {2, 24}, std::vector<float>(48)), "x.dat",
        {"--quant", "nvfp4"}, 3, "'a.q_proj.weight' has 24 columns");
  std::vector<float> x(32, 1.0f);
  x[20] = 1e6f;
  const std::string large = tensor_file("big.weight", {2, 16}, x);
  fails(large, "x.dat", {"--quant", "none"}, 3, "'big.weight' holds values that f16 cannot");
  EXPECT_FALSE(std::filesystem::exists(dir_.file("x.dat")));
  to(large, "x.dat", {"--quant", "none", "--dtype", "fp32"});
  x[20] = NAN;
  fails(tensor_file("n.q_proj.weight", {2, 16}, x), "y.dat", {"--quant", "nvfp4"}, 3,
        "'n.q_proj.weight': NaN");
  x[20] = 5000;
  to(tensor_file("s.q_proj.weight", {2, 16}, x), "z.dat", {"--quant", "nvfp4"});
  EXPECT_TRUE(contains(report_, "ends at 2688")) << report_;
}

TEST_F(Convert, AMatrixThatCannotBeQuantisedIsAnError) {
  for (const DType dtype : {DType::f8_e4m3, DType::i32}) {
    for (const std::string name : {"a.q_proj.weight", "a.other"}) {
      TensorInfo info;
      info.name = name;
      info.dtype = dtype;
      info.shape = {2, 16};
      const std::string in = dir_.file("odd.safetensors");
      SafetensorsWriter w(in, {info});
      w.append(std::vector<std::byte>(32 * dtype_bytes(dtype)));
      w.finish();
      const std::string part = fmt::format("'{}' is {}", name, dtype_name(dtype));
      fails(in, "x.safetensors", {"--quant", "nvfp4", "--quantize", "a\\."}, 3, part);
      if (name == "a.q_proj.weight") fails(in, "x.safetensors", {"--quant", "nvfp4"}, 3, part);
      EXPECT_FALSE(std::filesystem::exists(dir_.file("x.safetensors")));
    }
  }
}

TEST_F(Convert, ScaleOptionsWithNothingToQuantiseAreSaid) {
  to(predecessor_, "a.dat", {"--quant", "nvfp4", "--scale-rule", "four-over-six"});
  EXPECT_TRUE(contains(report_, "had nothing to do")) << report_;
  to(predecessor_, "b.dat", {"--quant", "nvfp4", "--scales", "two-level"});
  EXPECT_TRUE(contains(report_, "had nothing to do")) << report_;
  to(predecessor_, "c.dat", {"--quant", "nvfp4"});
  EXPECT_FALSE(contains(report_, "had nothing to do")) << report_;
  to(tied_, "d.dat", {"--quant", "nvfp4", "--scale-rule", "absmax"});
  EXPECT_FALSE(contains(report_, "had nothing to do")) << report_;
}

TEST_F(Convert, RoundingIsCounted) {
  // 1 is exact in fp16, 1 + 2^-20 is not, and 2^-30 is below its smallest value.
  const std::string in = tensor_file("a.weight", {3}, {1.0f, 1 + 0x1p-20f, 0x1p-30f});
  to(in, "x.dat", {"--quant", "none"});
  EXPECT_TRUE(contains(report_, "2 raw values were rounded")) << report_;
  to(in, "y.dat", {"--quant", "none", "--dtype", "float32"});
  EXPECT_FALSE(contains(report_, "rounded")) << report_;
}

TEST_F(Convert, CompanionsAndForce) {
  to(tied_, "hf", {"--quant", "none"});
  EXPECT_EQ(read_text_file(dir_.file("hf/config.json")), read_text_file(tied_ + "/config.json"));
  EXPECT_TRUE(std::filesystem::exists(dir_.file("hf/generation_config.json")));
  // Beside a file: into an empty place only, or when asked to.
  to(tied_, "fresh/x.dat", {"--quant", "none"});
  EXPECT_TRUE(std::filesystem::exists(dir_.file("fresh/config.json")));
  to(tied_, "x.dat", {"--quant", "none"});
  EXPECT_FALSE(std::filesystem::exists(dir_.file("config.json")));
  to(tied_, "y.dat", {"--quant", "none", "--copy-config"});
  EXPECT_TRUE(std::filesystem::exists(dir_.file("config.json")));
  fails(tied_, "x.dat", {"--quant", "nvfp4"}, 2, "--force");
  fails(tied_, "hf", {"--quant", "nvfp4"}, 2, "--force");
  const std::string before = file_bytes(dir_.file("x.dat"));
  to(tied_, "x.dat", {"--quant", "nvfp4", "--force"});
  EXPECT_NE(file_bytes(dir_.file("x.dat")), before);
}

TEST_F(Convert, AnInputIsNeverOverwritten) {
  const std::string dat = to(tied_, "x.dat", {"--quant", "none"});
  cli_fails({"convert", dat, dat, "--quant", "nvfp4", "--force"}, 2, "is the input");
  std::filesystem::create_symlink(dat, dir_.path() / "link.dat");
  fails(dat, "link.dat", {"--quant", "nvfp4", "--force"}, 2, "is the input");
  const std::string hf = to(tied_, "hf", {"--quant", "none"});
  fails(hf, "hf", {"--quant", "nvfp4", "--force"}, 2, "holds the input");
  fails(hf + "/model.safetensors", "hf", {"--quant", "nvfp4", "--force"}, 2, "holds the input");
}

TEST_F(Convert, ThreadsDoNotChangeTheResult) {
  const std::string a = to(tied_, "a.dat", {"--quant", "nvfp4", "--threads", "1"});
  const std::string report = report_;
  const std::string b = to(tied_, "b.dat", {"--quant", "nvfp4", "--threads", "4"});
  EXPECT_EQ(file_bytes(a), file_bytes(b));
  EXPECT_EQ(report.substr(0, report.find("a.dat")), report_.substr(0, report_.find("b.dat")));
}

TEST_F(Convert, DamagedAndMissingInput) {
  fails(dir_.file("none.dat"), "x.dat", {"--quant", "none"}, 3, "none.dat");
  const std::string whole = read_text_file(predecessor_);
  replace_file(dir_.file("cut.dat"), whole.substr(0, whole.size() / 2));
  fails(dir_.file("cut.dat"), "x.dat", {"--quant", "none"}, 3, "cut.dat");
  fails(tied_, "x.dat", {"--quant", "int4"}, 2, "use none, nvfp4");
  cli_fails({"convert", tied_, "--quant", "none"}, 2, "OUT is missing");
}

}  // namespace
}  // namespace nibble::test
