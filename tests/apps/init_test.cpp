// SPDX-License-Identifier: MIT
// nibble init, option by option.
#include "apps/cli_run.h"

namespace nibble::test {
namespace {

class Init : public testing::Test {
 protected:
  std::string make(const std::string& name, std::vector<std::string> more = {}) {
    const std::string out = dir_.file(name);
    more.insert(more.begin(), {"init", "--config", config_, "--out", out});
    cli_ok(more);
    return out;
  }
  static DType dtype_in(const std::string& path) {
    return open_tensor_source(path)->tensors().front().dtype;
  }
  TemporaryDirectory dir_{"init"};
  std::string config_ = golden("qwen3_tied/config.json");
};

TEST_F(Init, FormatsAndWhatLiesBeside) {
  const auto directory = open_tensor_source(make("hf"));
  EXPECT_EQ(directory->format(), "safetensors");
  EXPECT_EQ(directory->tensors().size(), 24u);  // tied: no head
  EXPECT_EQ(directory->find("lm_head.weight"), nullptr);
  EXPECT_TRUE(std::filesystem::exists(dir_.file("hf/config.json")));
  EXPECT_TRUE(std::filesystem::exists(dir_.file("hf/generation_config.json")));
  const auto dat = open_tensor_source(make("d/x.dat"));
  EXPECT_EQ(dat->format(), "dat");
  EXPECT_EQ(dat->tensors().size(), 25u);
  EXPECT_EQ(dat->tensors().back().name, "lm_head.weight");
  EXPECT_EQ(dat->at("lm_head.weight").dat_code, 5);
  EXPECT_EQ(entry_bytes(*dat, "lm_head.weight"), entry_bytes(*dat, "model.embed_tokens.weight"));
  EXPECT_TRUE(std::filesystem::exists(dir_.file("d/config.json")));
  make("named", {"--format", "hf"});
  EXPECT_EQ(open_tensor_source(make("s.safetensors"))->format(), "safetensors");
  const std::string odd = make("odd.bin", {"--format", "dat"});
  EXPECT_EQ(file_bytes(odd), file_bytes(dir_.file("d/x.dat")));
}

TEST_F(Init, EqualSeedsGiveEqualValuesEverywhere) {
  const auto a = open_tensor_source(make("a", {"--seed", "11"}));
  const auto b = open_tensor_source(make("b.dat", {"--seed", "11"}));
  const WeightIndex ia(*a), ib(*b);
  for (const LogicalTensor& t : ia.tensors()) EXPECT_EQ(values(ia, t.name), values(ib, t.name));
  EXPECT_NE(file_bytes(make("c.dat", {"--seed", "12"})), file_bytes(dir_.file("b.dat")));
  EXPECT_EQ(file_bytes(make("e.dat", {"--seed", "11", "--threads", "3"})),
            file_bytes(dir_.file("b.dat")));
  // The upper half of the seed counts.
  EXPECT_NE(file_bytes(make("f.dat", {"--seed", "4294967307"})), file_bytes(dir_.file("b.dat")));
}

TEST_F(Init, Dtype) {
  EXPECT_EQ(dtype_in(make("a")), DType::bf16);
  EXPECT_EQ(dtype_in(make("b.dat")), DType::f16);
  EXPECT_EQ(dtype_in(make("c", {"--dtype", "fp32"})), DType::f32);
  EXPECT_EQ(dtype_in(make("d.dat", {"--dtype", "bfloat16"})), DType::bf16);
}

TEST_F(Init, Tokenizer) {
  replace_file(dir_.file("t.json"), "tokens");
  make("a", {"--tokenizer", dir_.file("t.json")});
  EXPECT_EQ(read_text_file(dir_.file("a/tokenizer.json")), "tokens");
  cli_fails({"init", "--config", config_, "--out", dir_.file("b"), "--tokenizer", "none"}, 3,
            "none");
}

TEST_F(Init, NothingIsReplacedWithoutForce) {
  make("a.dat");
  const std::string before = file_bytes(dir_.file("a.dat"));
  cli_fails({"init", "--config", config_, "--out", dir_.file("a.dat"), "--seed", "3"}, 2,
            "--force");
  EXPECT_EQ(file_bytes(dir_.file("a.dat")), before);
  make("a.dat", {"--seed", "3", "--force"});
  EXPECT_NE(file_bytes(dir_.file("a.dat")), before);
  make("hf");
  cli_fails({"init", "--config", config_, "--out", dir_.file("hf")}, 2, "not empty");
}

TEST_F(Init, Mistakes) {
  cli_fails({"init", "--config", dir_.file("none.json"), "--out", dir_.file("x")}, 3, "none.json");
  cli_fails({"init", "--config", config_}, 2, "--out is missing");
  cli_fails({"init", "--config", config_, "--out", dir_.file("x"), "--dtype", "int8"}, 2,
            "use fp16, bf16, fp32");
  cli_fails({"init", "--config", config_, "--out", dir_.file("x"), "--threads", "-1"}, 2,
            "--threads");
}

}  // namespace
}  // namespace nibble::test
