// SPDX-License-Identifier: MIT
#include "formats/safetensors.h"

#include "formats/files.h"

namespace nibble {
namespace {

using test::append;
using test::message_of;
using test::tensor;

std::string file_of(const std::string& json, const std::string& payload) {
  const uint64_t n = json.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + json + payload;
}

class Safetensors : public test::ScratchTest {
 protected:
  void expect_error(const std::string& json, const std::string& payload, std::string_view part) {
    expect_file_error(file_of(json, payload), part);
  }
  void expect_file_error(const std::string& bytes, std::string_view part) {
    const auto p = put("bad.safetensors", bytes);
    const std::string message = message_of<FormatError>([&] { open_safetensors(p); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("bad.safetensors"), std::string::npos) << message;
  }
};

constexpr const char* kA = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
constexpr const char* kB = R"("b":{"dtype":"F16","shape":[1,1],"data_offsets":[2,4]})";

std::string object(std::initializer_list<std::string> members) {
  std::string s = "{";
  for (const std::string& m : members) s += (s.size() > 1 ? "," : "") + m;
  return s + "}";
}

TEST_F(Safetensors, ReadsInPayloadOrderWithMetadata) {
  const auto source = open_safetensors(
      put("x.safetensors",
          file_of(object({kB, R"("__metadata__":{"format":"pt","k":"v"})", kA}) + "  ", "wxyz")));
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->tensors()[0].name, "a");
  EXPECT_EQ(test::read_bytes(*source, source->at("a")), "wx");
  EXPECT_EQ(test::read_bytes(*source, source->at("b")), "yz");
  EXPECT_EQ(source->at("b").dtype, DType::f16);
  EXPECT_EQ(source->at("b").dat_code, -1);
  EXPECT_EQ(source->metadata(), (TensorSource::Metadata{{"format", "pt"}, {"k", "v"}}));
}

TEST_F(Safetensors, EveryDType) {
  const std::pair<const char*, DType> rows[] = {
      {"F64", DType::f64},   {"F32", DType::f32},         {"F16", DType::f16},
      {"BF16", DType::bf16}, {"F8_E4M3", DType::f8_e4m3}, {"I8", DType::i8},
      {"U8", DType::u8},     {"I16", DType::i16},         {"I32", DType::i32},
      {"I64", DType::i64},   {"BOOL", DType::boolean}};
  for (const auto& [name, dtype] : rows) {
    const std::string json = std::string(R"({"t":{"dtype":")") + name +
                             R"(","shape":[3],"data_offsets":[0,)" +
                             std::to_string(3 * dtype_bytes(dtype)) + "]}}";
    const auto source = open_safetensors(
        put("x.safetensors", file_of(json, std::string(3 * dtype_bytes(dtype), 'x'))));
    EXPECT_EQ(source->at("t").dtype, dtype);
    EXPECT_EQ(safetensors_dtype_name(dtype), name);
  }
  for (const char* other : {"F8_E5M2", "U16", "f32", ""}) {
    expect_error(
        std::string(R"({"t":{"dtype":")") + other + R"(","shape":[1],"data_offsets":[0,1]}})", "x",
        std::string("tensor 't': unsupported dtype '") + other + "'");
  }
}

TEST_F(Safetensors, EmptyTensorsScalarsAndNoTensors) {
  const auto source = open_safetensors(put(
      "x.safetensors",
      file_of(
          R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
          "abcd")));
  EXPECT_EQ(source->at("e").n_bytes, 0u);
  EXPECT_EQ(source->at("s").numel(), 1);
  EXPECT_TRUE(open_safetensors(put("n.safetensors", file_of("{}", "")))->tensors().empty());
  EXPECT_TRUE(open_safetensors(put("m.safetensors", file_of(R"({"__metadata__":null})", "")))
                  ->metadata()
                  .empty());
}

TEST_F(Safetensors, RangesMustTileThePayload) {
  expect_error(object({kA, kB}), "wxy", "truncated");
  expect_error(object({kA, kB}), "wxyz!", "1 bytes follow");
  expect_error(object({kA, R"("c":{"dtype":"U8","shape":[2],"data_offsets":[1,3]})"}), "wxy",
               "begins at byte 1");
  expect_error(object({kA, R"("c":{"dtype":"U8","shape":[1],"data_offsets":[3,4]})"}), "wxyz",
               "begins at byte 3");
  expect_error(object({R"("c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})"}), "wx",
               "begins at byte 1");
  expect_error(object({R"("c":{"dtype":"U8","shape":[3],"data_offsets":[0,2]})"}), "wx",
               "does not fill");
  expect_error(object({R"("c":{"dtype":"U8","shape":[2],"data_offsets":[2,0]})"}), "wx",
               "does not fill");
  expect_error(
      object({R"("c":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]})"}), "wx",
      "does not fill");
  expect_error(
      object(
          {R"("c":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]})"}),
      "wx", "truncated");
  expect_error(
      object({R"("c":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]})"}), "",
      "does not fill");
}

TEST_F(Safetensors, HeadersThatAreNotWhatTheyShouldBe) {
  expect_file_error("", "too short");
  expect_file_error("1234567", "too short");
  expect_file_error(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}", "limit");
  expect_file_error(std::string("\x10\0\0\0\0\0\0\0", 8) + "{}", "truncated");
  expect_error("", "", "header");
  expect_error("[]", "", "does not begin with '{'");
  expect_error("7", "", "does not begin with '{'");
  expect_error("{", "", "parse error");
  expect_error("{} x", "", "parse error");
  expect_error(std::string(1000, '['), "", "does not begin with '{'");
  expect_error("{\"a\":" + std::string(1000, '['), "", "nested deeper than");
  expect_error(object({kA, kA}), "wx", "'a' occurs twice");
  expect_error(object({R"("__metadata__":{"a":"1","a":"2"})"}), "", "'a' occurs twice");
  expect_error(object({R"("__metadata__":{"a":1})"}), "", "__metadata__");
  expect_error(object({R"("__metadata__":{"a":{}})"}), "", "__metadata__");
  expect_error(object({R"("t":{})"}), "", "lacks");
  expect_error(object({R"("t":5)"}), "", "'t'");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1]})"}), "w", "lacks");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0]})"}), "w", "lacks");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]})"}), "w", "third");
  expect_error(object({R"("t":{"dtype":"U8","dtype":"U8"})"}), "w", "repeated field 'dtype'");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1],"extra":1})"}), "w", "field 'extra'");
  expect_error(object({R"("t":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"}), "w",
               "negative");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})"}), "w",
               "fraction");
  expect_error(object({R"("t":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]})"}), "w",
               "an array");
  expect_error(object({R"("t":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})"}),
               "w", "shape");
  expect_error(object({R"("":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})"}), "w", "name of 0");
  expect_error(object({"\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}"}), "w",
               "UTF-8");
}

TEST_F(Safetensors, WriteReadWriteIsIdentical) {
  const TensorSource::Metadata metadata = {{"quote\"\n", "\xe4\xbd\xa0"}, {"z", ""}};
  const std::vector<TensorInfo> tensors = {
      tensor("b \"q\"", DType::bf16, {2, 3}), tensor("empty", DType::f32, {0}),
      tensor("a", DType::u8, {5}), tensor("s", DType::f64, {})};
  SafetensorsWriter w(path("1.safetensors"), tensors, metadata);
  append(w, "abcdefghijklmnopqrstuvwxy");
  w.finish();
  const auto source = open_safetensors(path("1.safetensors"));
  EXPECT_EQ(source->metadata(), metadata);
  EXPECT_EQ(source->at("a").file_offset % 8, (8 + 12) % 8u)
      << "the payload starts at a multiple of 8";
  EXPECT_EQ(test::read_bytes(*source, source->at("a")), "mnopq");
  for (const size_t chunk : {1u, 4u, 100u}) {
    SafetensorsWriter again(path("2.safetensors"), source->tensors(), source->metadata());
    test::copy_payloads(*source, again, chunk);
    EXPECT_EQ(read_text_file(path("2.safetensors")), read_text_file(path("1.safetensors")));
  }
}

TEST_F(Safetensors, GoldenFilesAreRewrittenByteForByte) {
  for (const char* name : {"qwen3_tied/model.safetensors", "nvfp4/absmax.safetensors"}) {
    const auto source = open_safetensors(test::golden(name));
    SafetensorsWriter w(path("copy.safetensors"), source->tensors(), source->metadata());
    test::copy_payloads(*source, w, 1 << 16);
    EXPECT_TRUE(read_text_file(path("copy.safetensors")) == read_text_file(test::golden(name)))
        << name;
  }
}

TEST_F(Safetensors, NothingAppearsBeforeFinish) {
  {
    SafetensorsWriter w(path("x.safetensors"), {tensor("a", DType::u8, {4})});
    append(w, "abc");
    EXPECT_THROW(w.finish(), InternalError);
  }
  EXPECT_TRUE(listing().empty());
}

}  // namespace
}  // namespace nibble
