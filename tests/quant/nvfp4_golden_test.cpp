// SPDX-License-Identifier: MIT
// Against files made by other libraries, byte for byte.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/weights.h"
#include "quant/codec.h"
#include "quant/reference.h"
#include "support/paths.h"

namespace nibble {
namespace {

using test::pack;
using test::Packed;
using test::unpack;

std::filesystem::path golden(const char* relative) {
  return std::filesystem::path(kSourceDir) / "tests" / "golden" / relative;
}

template <class T>
std::vector<T> read(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.at(name);
  EXPECT_EQ(info.dtype, dtype_of<T>) << name;
  std::vector<T> out(size_t(info.numel()));
  source.read(info, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

std::vector<uint32_t> bits(const std::vector<float>& x) {
  std::vector<uint32_t> out;
  for (const float v : x) out.push_back(std::bit_cast<uint32_t>(v));
  return out;
}

void check_rule(const char* file, ScaleRule rule) {
  const auto source = open_tensor_source(golden(file));
  for (const char* i : {"0", "1", "2"}) {
    const auto x = read<float>(*source, std::string("x") + i);
    const Packed p = pack(x, rule);
    EXPECT_EQ(p.codes, read<uint8_t>(*source, std::string("qdata") + i)) << i;
    EXPECT_EQ(p.scales, read<uint8_t>(*source, std::string("scale") + i)) << i;
    EXPECT_EQ(bits(unpack(p)), bits(read<float>(*source, std::string("dequant") + i))) << i;
  }
}

TEST(Nvfp4Golden, Absmax) { check_rule("nvfp4/absmax.safetensors", ScaleRule::absmax); }
TEST(Nvfp4Golden, FourOverSix) {
  check_rule("nvfp4/four_over_six.safetensors", ScaleRule::four_over_six);
}

TEST(Nvfp4Golden, E4m3ValuesAndRounding) {
  const auto source = open_tensor_source(golden("nvfp4/absmax.safetensors"));
  const auto all = read<float>(*source, "e4m3_all");
  for (size_t i = 0; i < 256; ++i) {
    const float v = e4m3_value(uint8_t(i));
    EXPECT_TRUE(std::isnan(all[i]) ? std::isnan(v)
                                   : std::bit_cast<uint32_t>(all[i]) == std::bit_cast<uint32_t>(v))
        << i;
  }
  const auto in = read<float>(*source, "e4m3_in");
  const auto out = read<uint8_t>(*source, "e4m3_out");
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(e4m3_encode(in[i]), out[i]) << in[i];
}

TEST(Nvfp4Golden, PredecessorFileDequantisesToItsExpectedTensors) {
  const auto source = open_tensor_source(golden("predecessor/model-nvfp4.dat"));
  const auto expected = open_tensor_source(golden("predecessor/expected.safetensors"));
  const WeightIndex weights(*source);
  EXPECT_EQ(weights.tensors().size(), 25u);
  for (const LogicalTensor& t : weights.tensors()) {
    std::vector<float> x(size_t(t.numel()));
    if (t.packed()) {
      Packed p{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 16)};
      read_nvfp4_rows(*source, t, 0, t.rows, p.codes.data(), p.scales.data());
      x = unpack(p, read_global_scale(*source, t));
    } else {
      read_rows_f32(*source, t, 0, t.rows, x.data());
    }
    EXPECT_EQ(bits(x), bits(read<float>(*expected, "dequant." + t.name))) << t.name;
  }
}

// The file was made from the fp32 weights of qwen3_tied; its raw tensors are their fp16 form.
TEST(Nvfp4Golden, TorchaoRuleRemakesThePredecessorFileFromItsOriginals) {
  const auto source = open_tensor_source(golden("predecessor/model-nvfp4.dat"));
  const WeightIndex weights(*source);
  const auto original = open_tensor_source(golden("qwen3_tied/model.safetensors"));
  int packed = 0;
  for (const LogicalTensor& t : weights.tensors()) {
    if (!t.packed()) continue;
    ++packed;
    const bool tied = t.name == "lm_head.weight";
    const auto x = read<float>(*original, tied ? "model.embed_tokens.weight" : t.name);
    Packed stored{std::vector<uint8_t>(x.size() / 2), std::vector<uint8_t>(x.size() / 16)};
    read_nvfp4_rows(*source, t, 0, t.rows, stored.codes.data(), stored.scales.data());
    EXPECT_TRUE(pack(x, ScaleRule::torchao) == stored) << t.name;
  }
  EXPECT_EQ(packed, 15);
}

}  // namespace
}  // namespace nibble
