// SPDX-License-Identifier: MIT
#include "formats/weights.h"

#include <cmath>
#include <limits>

#include "core/half.h"
#include "formats/dat.h"
#include "formats/files.h"
#include "formats/safetensors.h"
#include "quant/codec.h"

namespace nibble {
namespace {

using test::append;
using test::bytes_of;
using test::message_of;
using test::tensor;

class Weights : public test::ScratchTest {
 protected:
  // Writes the tensors (payload zero unless given) and opens the file.
  std::unique_ptr<TensorSource> dat(std::vector<TensorInfo> tensors,
                                    const std::string& payload = "") {
    DatWriter w(path("w.dat"), std::move(tensors));
    append(w, payload.empty() ? std::string(size_t(w.payload_bytes()), '\0') : payload);
    w.finish();
    return open_dat(path("w.dat"));
  }
  void expect_error(std::vector<TensorInfo> tensors, std::string_view part) {
    const auto source = dat(std::move(tensors));
    const std::string m = message_of<FormatError>([&] { WeightIndex index(*source); });
    EXPECT_NE(m.find(part), std::string::npos) << m;
    EXPECT_NE(m.find("p.weight"), std::string::npos) << m;
  }
};

const TensorInfo kCodes = tensor("p.weight.qdata", DType::u8, {2, 16});
const TensorInfo kScales = tensor("p.weight.scale", DType::f8_e4m3, {2, 2});

TEST_F(Weights, GroupsInFileOrder) {
  const auto source = dat(
      {tensor("n", DType::f16, {5}), kScales, tensor("q.qdata", DType::u8, {1, 8}, 100), kCodes,
       tensor("q.scale", DType::f8_e4m3, {1, 1}), tensor("p.weight.global_scale", DType::f32, {1}),
       tensor("e.weight", DType::bf16, {3, 4, 5}), tensor("s", DType::f32, {})});
  const WeightIndex index(*source);
  ASSERT_EQ(index.tensors().size(), 5u);
  const char* order[] = {"n", "p.weight", "q.weight", "e.weight", "s"};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(index.tensors()[i].name, order[i]);
  const LogicalTensor& p = index.at("p.weight");
  EXPECT_TRUE(p.packed());
  EXPECT_EQ(p.shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(p.rows, 2);
  EXPECT_EQ(p.cols, 32);
  EXPECT_EQ(p.codes->name, "p.weight.qdata");
  EXPECT_NE(p.global_scale, nullptr);
  EXPECT_TRUE(index.at("q.weight").packed()) << "the short key style";
  EXPECT_EQ(index.at("q.weight").codes->dat_code, 100);
  EXPECT_EQ(index.at("n").rows, 1);
  EXPECT_EQ(index.at("n").cols, 5);
  EXPECT_EQ(index.at("e.weight").rows, 3);
  EXPECT_EQ(index.at("e.weight").cols, 20);
  EXPECT_EQ(index.at("s").numel(), 1);
  EXPECT_EQ(index.find("p.weight.qdata"), nullptr);
  EXPECT_THROW(index.at("absent"), FormatError);
}

TEST_F(Weights, BrokenGroupsAreErrors) {
  expect_error({kCodes}, "scales (.scale) are missing");
  expect_error({kScales}, "codes (.qdata) are missing");
  expect_error({tensor("p.weight.global_scale", DType::f32, {1})}, "codes (.qdata) are missing");
  expect_error({kCodes, kScales, tensor("p.weight", DType::f16, {2, 32})}, "raw as well");
  expect_error({kCodes, kScales, tensor("p.qdata", DType::u8, {2, 16})}, "same part");
  expect_error({kCodes, tensor("p.weight.scale", DType::f8_e4m3, {2, 3})}, "expected [2, 2]");
  expect_error({kCodes, tensor("p.weight.scale", DType::f8_e4m3, {4})}, "expected [2, 2]");
  expect_error({kCodes, tensor("p.weight.scale", DType::u8, {2, 2})}, "not f8_e4m3");
  expect_error({kCodes, tensor("p.weight.scale", DType::bf16, {2, 2})}, "not f8_e4m3");
  expect_error({tensor("p.weight.qdata", DType::i8, {2, 16}), kScales}, "not u8");
  expect_error({tensor("p.weight.qdata", DType::u8, {2, 12}), kScales}, "multiple of 16");
  expect_error({tensor("p.weight.qdata", DType::u8, {32}), kScales}, "multiple of 16");
  expect_error({tensor("p.weight.qdata", DType::u8, {0, 16}), kScales}, "multiple of 16");
  expect_error({kCodes, kScales, tensor("p.weight.global_scale", DType::f32, {2})}, "f32[2]");
  expect_error({kCodes, kScales, tensor("p.weight.global_scale", DType::f16, {1})}, "f16[1]");
}

TEST_F(Weights, ReadsRowsOfCodesAndScales) {
  std::string codes, scales;
  for (int i = 0; i < 3 * 16; ++i) codes += char(i + 100);
  for (int i = 0; i < 3 * 2; ++i) scales += char(i + 1);
  const auto source = dat({tensor("p.weight.qdata", DType::u8, {3, 16}),
                           tensor("p.weight.scale", DType::f8_e4m3, {3, 2}),
                           tensor("p.weight.global_scale", DType::f32, {1})},
                          codes + scales + bytes_of<float>({0.25f}));
  const WeightIndex index(*source);
  const LogicalTensor& p = index.at("p.weight");
  std::vector<uint8_t> c(32), s(4);
  read_nvfp4_rows(*source, p, 1, 2, c.data(), s.data());
  EXPECT_EQ(bytes_of(c), codes.substr(16));
  EXPECT_EQ(bytes_of(s), scales.substr(2));
  EXPECT_EQ(read_global_scale(*source, p), 0.25f);
  EXPECT_THROW(read_nvfp4_rows(*source, p, 2, 2, c.data(), s.data()), InternalError);
  EXPECT_THROW(read_nvfp4_rows(*source, p, -1, 1, c.data(), s.data()), InternalError);
  float x[32];
  EXPECT_THROW(read_rows_f32(*source, p, 0, 1, x), InternalError);
}

TEST_F(Weights, FloatScalesOfOldExportsBecomeE4m3ExactlyOrFail) {
  for (const DType dtype : {DType::f16, DType::f32}) {
    std::string scales;
    for (int i = 0; i < 254; ++i) {  // every finite E4M3 value
      const float v = e4m3_value(uint8_t(i < 127 ? i : i + 1));
      scales += dtype == DType::f16 ? bytes_of<uint16_t>({to_f16(v).bits}) : bytes_of<float>({v});
    }
    const auto write = [&](const std::string& stored) {
      return dat({tensor("p.weight.qdata", DType::u8, {127, 16}),
                  tensor("p.weight.scale", dtype, {127, 2})},
                 std::string(127 * 16, 'c') + stored);
    };
    std::vector<uint8_t> c(127 * 16), s(254);
    auto source = write(scales);
    const WeightIndex index(*source);
    read_nvfp4_rows(*source, index.at("p.weight"), 0, 127, c.data(), s.data());
    for (int i = 0; i < 254; ++i) EXPECT_EQ(s[size_t(i)], i < 127 ? i : i + 1);

    for (const float bad : {1.0625f, 480.0f, 0x1p-10f, std::numeric_limits<float>::quiet_NaN()}) {
      const std::string stored =
          dtype == DType::f16 ? bytes_of<uint16_t>({to_f16(bad).bits}) : bytes_of<float>({bad});
      std::string broken = scales;
      broken.replace(11 * stored.size(), stored.size(), stored);
      source = write(broken);
      const WeightIndex again(*source);
      const std::string m = message_of<FormatError>(
          [&] { read_nvfp4_rows(*source, again.at("p.weight"), 4, 10, c.data(), s.data()); });
      EXPECT_NE(m.find("'p.weight'"), std::string::npos) << m;
      EXPECT_NE(m.find("row 5, block 1"), std::string::npos) << m;
      read_nvfp4_rows(*source, again.at("p.weight"), 6, 10, c.data(), s.data());  // other rows load
    }
  }
}

TEST_F(Weights, NanScaleBytesAndBadGlobalScalesAreErrors) {
  for (const char nan : {'\x7f', '\xff'}) {
    const auto source = dat({kCodes, kScales}, std::string(32, 'c') + "\x01\x02" + nan + "\x03");
    const WeightIndex index(*source);
    std::vector<uint8_t> c(32), s(4);
    const std::string m = message_of<FormatError>(
        [&] { read_nvfp4_rows(*source, index.at("p.weight"), 0, 2, c.data(), s.data()); });
    EXPECT_NE(m.find("row 1, block 0"), std::string::npos) << m;
    EXPECT_EQ(read_global_scale(*source, index.at("p.weight")), 1.0f);
  }
  for (const float g : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const auto source = dat({kCodes, kScales, tensor("p.weight.global_scale", DType::f32, {1})},
                            std::string(36, '\0') + bytes_of<float>({g}));
    const WeightIndex index(*source);
    EXPECT_THROW(read_global_scale(*source, index.at("p.weight")), FormatError) << g;
  }
}

TEST_F(Weights, ReadsRawRowsAsFloat) {
  const std::vector<float> values = {1, -2.5f, 0.125f, -0.0f, 65504, 3};
  std::vector<uint16_t> halves, brains;
  std::vector<double> doubles;
  for (const float v : values) {
    halves.push_back(to_f16(v).bits);
    brains.push_back(to_bf16(v).bits);
    doubles.push_back(double(v));
  }
  const auto source = dat({tensor("f32", DType::f32, {3, 2}), tensor("f16", DType::f16, {3, 2}),
                           tensor("bf16", DType::bf16, {3, 2}), tensor("f64", DType::f64, {3, 2}),
                           tensor("i32", DType::i32, {3, 2}), tensor("f8", DType::f8_e4m3, {3, 2})},
                          bytes_of(values) + bytes_of(halves) + bytes_of(brains) +
                              bytes_of(doubles) + std::string(30, '\0'));
  const WeightIndex index(*source);
  for (const char* name : {"f32", "f16", "bf16", "f64"}) {
    float x[4];
    read_rows_f32(*source, index.at(name), 1, 2, x);
    for (size_t i = 0; i < 4; ++i) {
      const float expected =
          std::string(name) == "bf16" ? to_float(to_bf16(values[i + 2])) : values[i + 2];
      EXPECT_EQ(std::signbit(x[i]), std::signbit(expected));
      EXPECT_EQ(x[i], expected) << name;
    }
    EXPECT_THROW(read_rows_f32(*source, index.at(name), 2, 2, x), InternalError);
  }
  float x[6];
  const std::string m =
      message_of<FormatError>([&] { read_rows_f32(*source, index.at("i32"), 0, 3, x); });
  EXPECT_NE(m.find("'i32' is i32[3, 2]"), std::string::npos) << m;
  EXPECT_THROW(read_rows_f32(*source, index.at("f8"), 0, 3, x), FormatError);
}

TEST_F(Weights, LargeTensorsAreConvertedInPieces) {
  constexpr int64_t kRows = 7, kCols = 50001;  // several pieces, none a multiple
  std::vector<uint16_t> stored(kRows * kCols);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = uint16_t(i * 40503u % 0x7c00u);
  const auto source = dat({tensor("t", DType::f16, {kRows, kCols})}, bytes_of(stored));
  const WeightIndex index(*source);
  std::vector<float> x(5 * kCols);
  read_rows_f32(*source, index.at("t"), 2, 5, x.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], to_float(f16_t{stored[i + 2 * kCols]}));
}

TEST_F(Weights, DoublesTooLargeForFloatAreAnError) {
  const auto source = dat({tensor("t", DType::f64, {2})}, bytes_of<double>({1, 1e300}));
  const WeightIndex index(*source);
  float x[2];
  const std::string m =
      message_of<FormatError>([&] { read_rows_f32(*source, index.at("t"), 0, 1, x); });
  EXPECT_NE(m.find("element 1"), std::string::npos) << m;
}

}  // namespace
}  // namespace nibble
