// SPDX-License-Identifier: MIT
// Weights that are no numbers: found where they are read, and named, whether a reply would meet
// them or not.
#include <cmath>
#include <cstring>

#include "formats/container.h"
#include "hostile/program.h"

namespace nibble::test {
namespace {

namespace fs = std::filesystem;

class HostileWeights : public HostileTest {
 protected:
  // The toy with one element of a tensor replaced; elements of `T`.
  template <class T>
  std::string poked(const std::string& name, int64_t element, T value, const std::string& from) {
    const std::string m = file("poked");
    fs::remove_all(m);
    fs::copy(from, m, fs::copy_options::recursive);
    fs::path weights = fs::path(m) / "model.safetensors";
    if (!fs::exists(weights)) weights = fs::path(m) / "toy.dat";
    std::string bytes = read_text_file(weights);
    const auto source = open_tensor_source(weights);
    const TensorInfo& t = source->at(name);
    EXPECT_EQ(dtype_bytes(t.dtype), sizeof value) << name;
    std::memcpy(bytes.data() + t.file_offset + uint64_t(element) * sizeof value, &value,
                sizeof value);
    replace_file(weights, bytes);
    return weights.extension() == ".dat" ? weights.string() : m;
  }
  void refused(const Words& words, const std::string& tensor, const std::string& where) {
    const Ended r = run_program(words);
    EXPECT_EQ(r.code, 3) << words[0] << ": " << r.err << r.out;
    EXPECT_TRUE(contains(r.err, "'" + tensor + "'") && contains(r.err, where))
        << words[0] << ": " << r.err;
  }
};

TEST_F(HostileWeights, AreNamedAtLoad) {
  const Config c = toy_chat_config();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    // The last rows stand for no token: no reply ever reads them.
    const std::string m =
        poked<float>("model.embed_tokens.weight", (c.V - 1) * c.C + 3, bad, model());
    const std::string where = "in row " + std::to_string(c.V - 1) + ", element 3";
    refused({"generate", "--model", m, "--prompt", "x"}, "model.embed_tokens.weight", where);
    refused({"chat", "--model", m, "--prompt", "x"}, "model.embed_tokens.weight", where);
    refused(train_words({"--steps", "1", "--model", m}), "model.embed_tokens.weight", where);
  }
  const std::string m = poked<float>("model.norm.weight", 1, NAN, model());
  refused({"generate", "--model", m, "--prompt", "x"}, "model.norm.weight", "element");
}

TEST_F(HostileWeights, ScalesAreNamedToo) {
  ASSERT_EQ(run_program({"convert", model(), file("dat/toy.dat"), "--quant", "nvfp4"}).code, 0);
  std::string name;
  const auto source = open_tensor_source(file("dat/toy.dat"));
  for (const TensorInfo& t : source->tensors()) {
    if (t.name.ends_with("down_proj.weight.scale")) name = t.name;
  }
  ASSERT_FALSE(name.empty());
  const std::string m = poked<uint8_t>(name, 5, 0x7f, file("dat"));
  const std::string tensor = name.substr(0, name.size() - 6);
  refused({"generate", "--model", m, "--prompt", "x"}, tensor, "row 0, block 5");
}

// Its output would be called damaged, so it is not called a success.
TEST_F(HostileWeights, ConvertSaysWhatInspectWouldSay) {
  const std::string m = poked<float>("model.norm.weight", 1, NAN, model());
  for (const Words& more : {Words{"--quant", "none"}, Words{"--quant", "nvfp4"},
                            Words{"--quant", "none", "--dtype", "bf16"}}) {
    Words words = {"convert", m, file("out"), "--force"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended r = run_program(words);
    EXPECT_EQ(r.code, 3) << r.err << r.out;
    EXPECT_TRUE(contains(r.out + r.err, "model.norm.weight")) << r.out;
    EXPECT_EQ(run_program({"inspect", file("out")}).code, 3);
  }
  fs::remove_all(file("out"));
  EXPECT_EQ(run_program({"convert", model(), file("out"), "--quant", "none"}).code, 0);
}

}  // namespace
}  // namespace nibble::test
