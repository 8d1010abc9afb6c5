// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "formats/files.h"
#include "formats/safetensors.h"

namespace nibble {
namespace {

using test::append;
using test::message_of;
using test::tensor;

class Sharded : public test::ScratchTest {
 protected:
  // a, b in the first shard, c in the second.
  void write_model() {
    ShardedSafetensorsWriter w(
        dir_,
        {tensor("a", DType::u8, {4}), tensor("b", DType::u8, {2}), tensor("c", DType::f32, {2})},
        {{"format", "pt"}}, 8);
    append(w, "aaaabbcccccccc");
    EXPECT_EQ(visible(), 0) << "nothing appears before finish()";
    w.finish();
  }
  int visible() const {
    int n = 0;
    for (const std::string& name : listing()) n += name.find("-tmp") == std::string::npos;
    return n;
  }
  void put_index(const nlohmann::json& weight_map) {
    put(kIndex, nlohmann::json{{"weight_map", weight_map}}.dump());
  }
  void expect_error(std::string_view part) {
    const std::string m = message_of<FormatError>([&] { open_sharded_safetensors(path(kIndex)); });
    EXPECT_NE(m.find(part), std::string::npos) << m;
  }
  static constexpr const char* kIndex = "model.safetensors.index.json";
  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
};

TEST_F(Sharded, WritesShardsAndIndexAndReadsThemBack) {
  write_model();
  EXPECT_EQ(listing(), (std::vector<std::string>{kFirst, kSecond, kIndex}));
  const auto index = nlohmann::json::parse(read_text_file(path(kIndex)));
  EXPECT_EQ(index["metadata"]["total_size"], 14);
  EXPECT_EQ(index["weight_map"]["b"], kFirst);
  EXPECT_EQ(index["weight_map"]["c"], kSecond);
  for (const auto& p : {dir_, path(kIndex)}) {
    const auto source = open_tensor_source(p);
    EXPECT_EQ(source->files().size(), 2u);
    EXPECT_EQ(source->tensors().size(), 3u);
    EXPECT_EQ(test::read_bytes(*source, source->at("b")), "bb");
    EXPECT_EQ(test::read_bytes(*source, source->at("c")), "cccccccc");
    EXPECT_EQ(source->metadata().at("format"), "pt");
    EXPECT_NE(source->describe().find("2 files"), std::string::npos) << source->describe();
  }
}

TEST_F(Sharded, OneShardIsAPlainFile) {
  ShardedSafetensorsWriter w(dir_ / "new" / "folder", {tensor("a", DType::u8, {4})});
  append(w, "aaaa");
  w.finish();
  EXPECT_EQ(open_tensor_source(dir_ / "new" / "folder")->tensors().size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "new" / "folder" / "model.safetensors"));
}

TEST_F(Sharded, ATensorLargerThanAShardHasOneOfItsOwn) {
  ShardedSafetensorsWriter w(
      dir_, {tensor("a", DType::u8, {1}), tensor("b", DType::u8, {9}), tensor("c", DType::u8, {2})},
      {}, 4);
  append(w, "abbbbbbbbbcc");
  w.finish();
  const auto index = nlohmann::json::parse(read_text_file(path(kIndex)));
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00003.safetensors");
  const auto source = open_tensor_source(dir_);
  EXPECT_EQ(test::read_bytes(*source, source->at("b")), "bbbbbbbbb");
  EXPECT_EQ(test::read_bytes(*source, source->at("c")), "cc");
}

TEST_F(Sharded, TooManyShardsAreRefused) {
  std::vector<TensorInfo> tensors;
  for (size_t i = 0; i <= ShardedSafetensorsWriter::kMostShards; ++i) {
    tensors.push_back(tensor("t" + std::to_string(i), DType::u8, {2}));
  }
  const std::string m =
      message_of<UsageError>([&] { ShardedSafetensorsWriter(dir_, tensors, {}, 2); });
  EXPECT_NE(m.find("401 files for 802 bytes of weights: 400 is the most"), std::string::npos) << m;
  EXPECT_TRUE(listing().empty());
  tensors.pop_back();
  ShardedSafetensorsWriter(dir_, tensors, {}, 2);
}

TEST_F(Sharded, OldAndNewFilesDoNotMix) {
  write_model();
  const std::vector<TensorInfo> two = {tensor("a", DType::u8, {4}), tensor("b", DType::u8, {4})};
  EXPECT_THROW(ShardedSafetensorsWriter(dir_, two, {}, 4), UsageError);
  EXPECT_THROW(ShardedSafetensorsWriter(dir_, two), UsageError);
  std::filesystem::remove(path(kIndex));
  put("model.safetensors", "");
  EXPECT_THROW(ShardedSafetensorsWriter(dir_, two, {}, 4), UsageError);
  put(kIndex, "{}");
  const std::string m = message_of<FormatError>([&] { open_tensor_source(dir_); });
  EXPECT_NE(m.find("both"), std::string::npos) << m;
}

TEST_F(Sharded, MissingShard) {
  write_model();
  std::filesystem::remove(path(kSecond));
  expect_error(kSecond);
}

TEST_F(Sharded, IndexAndShardsMustAgree) {
  write_model();
  put_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kSecond}});
  expect_error("'d' is not in");
  put_index({{"a", kFirst}, {"c", kSecond}});
  expect_error("'b', which");
  put_index({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}});
  expect_error("'b', which");
}

TEST_F(Sharded, ShardNamesStayInTheDirectory) {
  write_model();
  for (const char* bad : {"../x.safetensors", "/etc/passwd", "sub/x", "..", ".", "", "a\\b"}) {
    put_index({{"a", bad}});
    expect_error("not a plain file name");
  }
}

TEST_F(Sharded, MalformedIndex) {
  const std::string deep = R"({"metadata":)" + std::string(100, '[') + std::string(100, ']') + "}";
  const std::pair<const char*, const char*> cases[] = {
      {"", "parse error"},
      {"[]", "an array"},
      {"{}", "no weight_map"},
      {R"({"weight_map":[]})", "an array"},
      {R"({"weight_map":"x"})", "a string"},
      {R"({"weight_map":{"a":1}})", "as the shard of 'a'"},
      {R"({"weight_map":{"a":{}}})", "as the shard of 'a'"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "'a' occurs twice"},
      {R"({"weight_map":{},"weight_map":{}})", "weight_map occurs twice"},
      {deep.c_str(), "nested"}};
  for (const auto& [text, part] : cases) {
    put(kIndex, text);
    expect_error(part);
  }
  put(kIndex,
      R"({"metadata":{"total_size":0,"x":[1,-1,1.5,null,true,{"weight_map":3}]},"weight_map":{}})");
  EXPECT_TRUE(open_sharded_safetensors(path(kIndex))->tensors().empty());
}

}  // namespace
}  // namespace nibble
