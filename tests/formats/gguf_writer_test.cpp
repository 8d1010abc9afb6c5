// SPDX-License-Identifier: MIT
// A GGUF that is written: what the reader sees of it, and the blocks its values become.
#include <cmath>
#include <random>

#include "core/error.h"
#include "core/half.h"
#include "formats/container.h"
#include "formats/files.h"
#include "formats/gguf/encode_blocks.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/gguf_writer.h"
#include "quant/codec.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

class GgufOut : public test::ScratchTest {};

std::vector<float> normal(size_t n, double deviation, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = float(draw(random));
  return x;
}

TensorInfo blocks(std::string name, const char* type, std::vector<int64_t> shape) {
  TensorInfo t = test::tensor(std::move(name), DType::f32, std::move(shape));
  t.blocks = &block_type_named(type);
  return t;
}

TEST_F(GgufOut, TheReaderSeesWhatWasWritten) {
  GgufMetadata m;
  m.set_text("general.architecture", "none");
  m.set_u32("a.count", 4'000'000'000);
  m.set_f32("a.number", 0.1);
  m.set_flag("a.flag", true);
  m.set_texts("a.texts", {"", "Ġhello", std::string(300, 'x')});
  m.set_i32s("a.integers", {-1, 0, 7});
  const std::vector<float> x = normal(64 * 3, 1);
  std::vector<uint8_t> q8(size_t(6 * 34));
  encode_blocks(block_type_named("Q8_0"), x.data(), 6, q8.data());
  {
    // A payload of 6 bytes first: the next begins at a multiple of 32 all the same.
    GgufWriter w(path("x.gguf"),
                 {test::tensor("half", DType::f16, {3}), blocks("eight", "Q8_0", {3, 64}),
                  test::tensor("full", DType::f32, {3, 64})},
                 m);
    EXPECT_EQ(w.payload_bytes(), 6 + 6 * 34 + 64u * 3 * 4);
    const std::vector<uint16_t> half = {0x3c00, 0, 0xc000};
    w.append(std::as_bytes(std::span(half)));
    w.append(std::as_bytes(std::span(q8)));
    w.append(std::as_bytes(std::span(x)));
    w.finish();
  }
  const auto source = open_gguf(path("x.gguf"));
  EXPECT_EQ(source->values().text("general.architecture"), "none");
  EXPECT_EQ(source->values().integer("a.count"), 4'000'000'000);
  EXPECT_EQ(source->values().number("a.number"), double(0.1f));
  EXPECT_EQ(source->values().find_flag("a.flag"), true);
  EXPECT_EQ(source->values().texts("a.texts")[1], "Ġhello");
  EXPECT_EQ(source->values().integers("a.integers"), (GgufIntegers{-1, 0, 7}));
  EXPECT_EQ(source->at("half").n_bytes, 6u);
  EXPECT_EQ(source->at("eight").shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(source->at("eight").file_offset % 32, 0u);
  EXPECT_EQ(source->at("full").file_offset % 32, 0u);
  std::vector<uint8_t> stored(q8.size());
  source->read_stored(source->at("eight"), 0, std::as_writable_bytes(std::span(stored)));
  EXPECT_EQ(stored, q8);
  EXPECT_EQ(test::read_bytes(*source, source->at("full")),
            std::string(reinterpret_cast<const char*>(x.data()), x.size() * 4));
}

TEST_F(GgufOut, NothingAppearsBeforeItIsWhole) {
  {
    GgufWriter w(path("x.gguf"), {test::tensor("a", DType::f32, {2})}, GgufMetadata());
    EXPECT_FALSE(std::filesystem::exists(path("x.gguf")));
    EXPECT_THROW(w.finish(), InternalError);
  }
  EXPECT_EQ(test::ScratchTest::listing(), std::vector<std::string>());
}

// Rounding to the nearest code, and the scale to 11 bits, of which no code has more than `levels`.
void expect_near(const char* type, double step_of_amax, double levels) {
  const BlockType& t = block_type_named(type);
  for (const double deviation : {1e-3, 0.02, 1.0, 300.0}) {
    const std::vector<float> x = normal(32 * 200, deviation);
    std::vector<uint8_t> b(size_t(200 * t.bytes));
    std::vector<float> y(x.size());
    encode_blocks(t, x.data(), 200, b.data());
    t.expand(b.data(), 200, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float amax = absolute_maximum(&x[i / 32 * 32], 32);
      const double step = step_of_amax * double(amax);
      // Below the normal numbers of fp16 the scale has steps of 2^-24.
      const double scale = std::max(step * 0x1p-11, 0x1p-25) * levels;
      EXPECT_LE(std::abs(double(x[i]) - double(y[i])), step / 2 * 1.00001 + scale)
          << type << " " << i;
    }
  }
}
TEST_F(GgufOut, BlocksAreTheNearestTheyCanBe) {
  expect_near("Q8_0", 1.0 / 127, 127);
  // The side away from the largest value ends at 7 of 8 steps: there half a step becomes a whole.
  expect_near("Q4_0", 2.0 / 8, 8);
}

TEST_F(GgufOut, Mxfp4TakesThePowerOfTwoBelow) {
  const BlockType& t = block_type_named("MXFP4");
  std::vector<float> x(32, 0.0f), y(32);
  const float values[] = {6, -4, 3, 2, 1.5f, 1, 0.5f, -0.5f};
  for (size_t i = 0; i < 8; ++i) x[i * 4] = values[i] * 0x1p-9f;
  uint8_t b[17];
  encode_blocks(t, x.data(), 1, b);
  t.expand(b, 1, y.data());
  EXPECT_EQ(x, y);  // all are values of the type
  EXPECT_EQ(b[0], 127 - 9);
  std::fill(x.begin(), x.end(), 0.0f);
  encode_blocks(t, x.data(), 1, b);
  EXPECT_EQ(std::vector<uint8_t>(b, b + 17), std::vector<uint8_t>(17, 0));
}

TEST_F(GgufOut, ZerosStayZeros) {
  for (const char* type : {"Q8_0", "Q4_0"}) {
    const BlockType& t = block_type_named(type);
    const std::vector<float> zero(32, 0.0f);
    std::vector<uint8_t> b(size_t(t.bytes));
    std::vector<float> y(32, 1.0f);
    encode_blocks(t, zero.data(), 1, b.data());
    t.expand(b.data(), 1, y.data());
    EXPECT_EQ(y, zero) << type;
  }
}

TEST_F(GgufOut, Nvfp4OnlyChangesItsOrder) {
  std::mt19937_64 random(3);
  constexpr int64_t kBlocks = 500;
  std::vector<uint8_t> codes(size_t(kBlocks * 32)), scales(size_t(kBlocks * 4));
  for (uint8_t& c : codes) c = uint8_t(random());
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = uint8_t(i % kE4m3NanCode);
  std::vector<uint8_t> joined(size_t(kBlocks * 36));
  join_nvfp4_blocks(codes.data(), scales.data(), kBlocks, joined.data());
  std::vector<float> mine(size_t(kBlocks * 64)), theirs(mine.size());
  dequantize_rows(codes.data(), scales.data(), kBlocks, 64, 1, mine.data());
  block_type_named("NVFP4").expand(joined.data(), kBlocks, theirs.data());
  EXPECT_EQ(mine, theirs);
  std::vector<uint8_t> codes2(codes.size()), scales2(scales.size());
  EXPECT_TRUE(split_nvfp4_blocks(joined.data(), kBlocks, codes2.data(), scales2.data()));
  EXPECT_EQ(codes2, codes);
  EXPECT_EQ(scales2, scales);

  // A scale below zero turns its codes: the values stay.
  for (uint8_t& s : scales) s |= 0x80;
  join_nvfp4_blocks(codes.data(), scales.data(), kBlocks, joined.data());
  dequantize_rows(codes.data(), scales.data(), kBlocks, 64, 1, mine.data());
  block_type_named("NVFP4").expand(joined.data(), kBlocks, theirs.data());
  EXPECT_EQ(mine, theirs);

  joined[0] = 0x7f;  // what would be NaN is a zero there
  EXPECT_TRUE(split_nvfp4_blocks(joined.data(), 1, codes2.data(), scales2.data()));
  EXPECT_EQ(scales2[0], 0);
  joined[1] = 0xff;
  EXPECT_FALSE(split_nvfp4_blocks(joined.data(), 1, codes2.data(), scales2.data()));
}

TEST_F(GgufOut, ANameSaysTheFormat) {
  EXPECT_EQ(format_for("a/x.dat").format, ModelFormat::dat);
  EXPECT_EQ(format_for("x.gguf").format, ModelFormat::gguf);
  EXPECT_EQ(format_for("x.safetensors").format, ModelFormat::safetensors);
  EXPECT_EQ(format_for("Qwen2.5-0.5B").format, ModelFormat::hf);  // a name with a point in it
  EXPECT_EQ(format_for("out", ModelFormat::hf).format, ModelFormat::hf);
  for (const char* other : {"x.bin", "x.pt", "x.onnx", "x.json"}) {
    EXPECT_THROW(format_for(other), UsageError) << other;
  }
  EXPECT_THROW(format_for("x.bin", ModelFormat::hf), UsageError);
  EXPECT_THROW(format_for("x.dat", ModelFormat::gguf), UsageError);
  EXPECT_THROW(format_for("x", ModelFormat::gguf), UsageError);
  EXPECT_THROW(format_for("x.dat", ModelFormat::hf), UsageError);
  std::filesystem::create_directory(path("old.bin"));  // it is there, and a directory
  EXPECT_EQ(format_for(path("old.bin")).format, ModelFormat::hf);
  EXPECT_EQ(format_names().size(), format_table().size());
}

}  // namespace
}  // namespace nibble
