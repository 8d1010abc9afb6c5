// SPDX-License-Identifier: MIT
// Which tensors are quantised, how raw values are cast, and when a head counts as tied.
#include "convert/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "convert/raw_cast.h"
#include "convert/tied_head.h"
#include "core/half.h"
#include "formats/safetensors.h"
#include "support/golden.h"

namespace nibble {
namespace {

TEST(IsLinearName, ThePredecessorsFilter) {
  for (const char* part :
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}) {
    EXPECT_TRUE(is_linear_name(std::string("model.layers.0.x.") + part + ".weight"));
  }
  EXPECT_TRUE(is_linear_name("lm_head.weight"));
  EXPECT_FALSE(is_linear_name("model.embed_tokens.weight"));
  EXPECT_FALSE(is_linear_name("model.norm.weight"));
  EXPECT_FALSE(is_linear_name("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_FALSE(is_linear_name("model.layers.0.input_layernorm.weight"));
}

// Found by a fuzzer: the parts of a matrix that is called neither ".weight" nor anything else
// known.
TEST(Convert, AMatrixOfAnotherNameHasPartsInEveryForm) {
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::string own = std::to_string(::getpid());
  const auto input = folder / ("odd-" + own + ".safetensors"),
             output = folder / ("odd-out-" + own + ".safetensors");
  TensorInfo e;
  e.name = "model.layers.0.self_attn.o_proj.odd";
  e.shape = {64, 64};
  {
    const std::vector<float> values(64 * 64, 0.5f);
    SafetensorsWriter w(input, {e});
    w.append(std::as_bytes(std::span(values)));
    w.finish();
  }
  ThreadPool pool(1);
  const std::pair<Nvfp4Names, const char*> forms[] = {
      {Nvfp4Names::compressed_tensors, ".weight_packed"}, {Nvfp4Names::modelopt, ".weight"}};
  for (const auto& [names, codes] : forms) {
    ConvertSettings settings;
    settings.container = Container::safetensors;
    settings.packing = Packing::nvfp4;
    settings.levels = ScaleLevels::two;
    settings.names = names;
    settings.quantize = "o_proj";
    convert_weights(*open_safetensors(input), nullptr, output, settings, pool);
    const auto made = open_safetensors(output);
    const TensorInfo* packed = nullptr;
    for (const TensorInfo& t : made->tensors()) {
      if (t.dtype == DType::u8) packed = &t;
    }
    ASSERT_NE(packed, nullptr);
    EXPECT_EQ(packed->name, e.name + codes);
    std::filesystem::remove(output);
  }
  std::filesystem::remove(input);
}

TEST(CastFromF32, CountsWhatIsLost) {
  const float x[] = {1.0f, 1.0f + 0x1p-20f, 70000.0f, NAN, INFINITY, -0.0f, 0x1p-30f};
  f16_t half[7];
  const CastLoss f16 = cast_from_f32(x, 7, DType::f16, half);
  EXPECT_EQ(f16.inexact, 3);  // 1 + 2^-20, 70000 and 2^-30
  EXPECT_EQ(f16.overflow, 1);
  EXPECT_EQ(half[5].bits, 0x8000);
  bf16_t brain[7];
  const CastLoss bf16 = cast_from_f32(x, 7, DType::bf16, brain);
  EXPECT_EQ(bf16.inexact, 2);  // 70000 has more than eight bits
  EXPECT_EQ(bf16.overflow, 0);
  float same[7];
  EXPECT_EQ(cast_from_f32(x, 7, DType::f32, same).inexact, 0);
  EXPECT_THROW(cast_from_f32(x, 7, DType::i8, same), InternalError);
}

class TiedHead : public testing::Test {
 protected:
  // A file with an embedding and a head quantised from `head` under a rule.
  HeadCheck check(const std::vector<float>& embed, const std::vector<float>& head, ScaleRule rule) {
    constexpr int64_t kRows = 64, kCols = 64;
    std::vector<uint8_t> codes(kRows * kCols / 2), scales(kRows * kCols / 16);
    quantize_rows(head.data(), kRows, kCols, rule, 1, codes.data(), scales.data());
    TensorInfo e, q, s;
    e.name = "model.embed_tokens.weight";
    e.shape = {kRows, kCols};
    q.name = "lm_head.weight.qdata";
    q.dtype = DType::u8;
    q.shape = {kRows, kCols / 2};
    s.name = "lm_head.weight.scale";
    s.dtype = DType::f8_e4m3;
    s.shape = {kRows, kCols / 16};
    const auto path = std::filesystem::path(testing::TempDir()) /
                      ("tied_head-" + std::to_string(::getpid()) + ".safetensors");
    {
      SafetensorsWriter w(path, {e, q, s});
      w.append(std::as_bytes(std::span(embed)));
      w.append(std::as_bytes(std::span(codes)));
      w.append(std::as_bytes(std::span(scales)));
      w.finish();
    }
    const auto source = open_safetensors(path);
    std::filesystem::remove(path);
    ThreadPool pool(2);
    return check_head(WeightIndex(*source), pool);
  }
  static std::vector<float> wave(double phase) {
    std::vector<float> x(64 * 64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(0.05 * std::sin(0.37 * double(i) + phase));
    return x;
  }
};

TEST_F(TiedHead, AnyScaleRuleIsRecognised) {
  const auto x = wave(0);
  for (const ScaleRule rule :
       {ScaleRule::four_over_six, ScaleRule::absmax, ScaleRule::search, ScaleRule::torchao}) {
    const HeadCheck c = check(x, x, rule);
    EXPECT_EQ(c.relation, HeadCheck::Relation::tied) << scale_rule_name(rule) << c.share;
  }
}

TEST_F(TiedHead, AnotherHeadIsNot) {
  const HeadCheck c = check(wave(0), wave(1), ScaleRule::four_over_six);
  EXPECT_EQ(c.relation, HeadCheck::Relation::different);
  EXPECT_LT(c.share, 0.5);
  // One part in two hundred of the blocks retrained is enough.
  auto x = wave(0), y = x;
  for (size_t i = 0; i < 16; ++i) y[16 * 50 * 5 % x.size() + i] += 0.03f;
  const HeadCheck almost = check(x, y, ScaleRule::absmax);
  EXPECT_EQ(almost.relation, HeadCheck::Relation::different);
  EXPECT_GT(almost.share, 0.99);
}

// The master of a tied model is the embedding in bf16, and a training makes the head's codes of it:
// a file whose head came from other bits would be another model after a step that moves nothing.
TEST_F(TiedHead, HasTheCodesThatATrainingWouldMake) {
  constexpr int64_t kRows = 64, kCols = 64;
  const auto folder = std::filesystem::path(testing::TempDir());
  const std::string own = std::to_string(::getpid());
  const auto input = folder / ("tied-" + own + ".safetensors"),
             output = folder / ("tied-" + own + ".dat");
  std::vector<float> embed = wave(0.3);
  TensorInfo e;
  e.name = "model.embed_tokens.weight";
  e.shape = {kRows, kCols};
  {
    SafetensorsWriter w(input, {e});
    w.append(std::as_bytes(std::span(embed)));
    w.finish();
  }
  Config config;
  config.V = kRows, config.C = kCols, config.tied = true;
  ThreadPool pool(2);
  ConvertSettings settings;
  settings.container = Container::dat;
  settings.packing = Packing::nvfp4;
  EXPECT_TRUE(convert_weights(*open_safetensors(input), &config, output, settings, pool).head_made);
  for (float& x : embed) x = to_float(to_bf16(to_float(to_f16(x))));
  std::vector<uint8_t> codes(kRows * kCols / 2), scales(kRows * kCols / 16);
  quantize_rows(embed.data(), kRows, kCols, settings.rule, 1, codes.data(), scales.data());
  const auto made = open_tensor_source(output);
  const WeightIndex index(*made);
  const LogicalTensor* head = index.find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  std::vector<uint8_t> found_codes(codes.size()), found_scales(scales.size());
  made->read(*head->codes, 0, std::as_writable_bytes(std::span(found_codes)));
  made->read(*head->scales, 0, std::as_writable_bytes(std::span(found_scales)));
  EXPECT_EQ(found_codes, codes);
  EXPECT_EQ(found_scales, scales);
  std::filesystem::remove(input);
  std::filesystem::remove(output);
}

TEST_F(TiedHead, ThePredecessorsFileIsTied) {
  const auto source = open_tensor_source(test::golden_dir() / "predecessor/model-nvfp4.dat");
  ThreadPool pool(1);
  EXPECT_EQ(check_head(WeightIndex(*source), pool).relation, HeadCheck::Relation::tied);
  const auto untied = open_tensor_source(test::golden_dir() / "qwen3_untied");
  EXPECT_EQ(check_head(WeightIndex(*untied), pool).relation, HeadCheck::Relation::different);
  const auto without = open_tensor_source(test::golden_dir() / "qwen3_tied");
  EXPECT_EQ(check_head(WeightIndex(*without), pool).relation, HeadCheck::Relation::absent);
}

}  // namespace
}  // namespace nibble
