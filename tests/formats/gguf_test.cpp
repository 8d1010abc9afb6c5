// SPDX-License-Identifier: MIT
// GGUF files that are right: block types bit for bit, metadata, shapes, reads of any range, splits.
#include "formats/gguf/gguf.h"

#include "core/half.h"
#include "formats/files.h"
#include "formats/weights.h"
#include "support/gguf_file.h"

namespace nibble {
namespace {

using test::GgufFile;

class Gguf : public test::ScratchTest {};

struct GoldenType {
  std::string name, raw, f32;  // rows of blocks, and what they expand to
  int64_t rows = 0, cols = 0;
};

std::vector<GoldenType> golden_types() {
  const auto file = open_tensor_source(test::golden("gguf/types.safetensors"));
  std::vector<GoldenType> all;
  for (const TensorInfo& t : file->tensors()) {
    if (!t.name.ends_with(".raw")) continue;
    GoldenType g;
    g.name = t.name.substr(0, t.name.size() - 4);
    const TensorInfo& f32 = file->at(g.name + ".f32");
    g.raw = test::read_bytes(*file, t);
    g.f32 = test::read_bytes(*file, f32);
    g.rows = f32.shape[0];
    g.cols = f32.shape[1];
    all.push_back(std::move(g));
  }
  return all;
}

const BlockType* type_named(const std::string& name) {
  for (uint64_t code = 0; code < 64; ++code) {
    const BlockType* t = find_block_type(code);
    if (t && t->name == name) return t;
  }
  return nullptr;
}

GgufFile golden_bag() {
  GgufFile file;
  for (const GoldenType& g : golden_types()) {
    file.add(g.name, {uint64_t(g.cols), uint64_t(g.rows)}, type_named(g.name)->code, g.raw);
  }
  return file;
}

TEST_F(Gguf, EveryBlockTypeExpandsToTheGoldenBits) {
  golden_bag().write(path("bag.gguf"));
  const auto source = open_gguf(path("bag.gguf"));
  const auto types = golden_types();
  ASSERT_EQ(types.size(), 26u);
  ASSERT_EQ(source->tensors().size(), 26u);
  for (const GoldenType& g : types) {
    const TensorInfo& t = source->at(g.name);
    EXPECT_EQ(t.shape, (std::vector<int64_t>{g.rows, g.cols})) << g.name;
    EXPECT_EQ(t.stored_bytes(), g.raw.size()) << g.name;
    const WeightIndex index(*source);
    std::vector<float> x(size_t(g.rows * g.cols));
    read_rows_f32(*source, index.at(g.name), 0, g.rows, x.data());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(x.data()), x.size() * 4), g.f32) << g.name;
  }
}

TEST_F(Gguf, AnyByteRangeIsThatOfTheWhole) {
  golden_bag().write(path("bag.gguf"));
  const auto source = open_gguf(path("bag.gguf"));
  for (const char* name : {"Q4_0", "Q6_K", "NVFP4", "BF16"}) {
    const TensorInfo& t = source->at(name);
    const std::string whole = test::read_bytes(*source, t);
    ASSERT_EQ(whole.size(), t.n_bytes);
    std::string part(whole.size() + 1, '\0');
    uint64_t seed = 1;
    for (int i = 0; i < 2000; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const size_t at = size_t((seed >> 33) % whole.size());
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const size_t n = size_t((seed >> 33) % (whole.size() - at + 1));
      const size_t shift = i % 2;  // a place that cannot hold floats
      source->read(t, at, std::as_writable_bytes(std::span(part.data() + shift, n)));
      ASSERT_EQ(part.substr(shift, n), whole.substr(at, n)) << name << " " << at << " + " << n;
    }
    EXPECT_THROW(source->read(t, t.n_bytes, std::as_writable_bytes(std::span(part.data(), 1))),
                 InternalError);
  }
}

TEST_F(Gguf, LongTensorsAreReadInChunks) {
  // 9 Ki blocks of Q8_0 are more than one chunk of the reader.
  GgufFile file;
  std::string raw;
  std::vector<float> expected;
  for (int b = 0; b < 9 * 1024; ++b) {
    raw += test::little_endian(uint16_t(0x3c00 + b % 7));  // scales from 1 on
    const float d = to_float(f16_t{uint16_t(0x3c00 + b % 7)});
    for (int i = 0; i < 32; ++i) {
      const auto q = int8_t(b * 5 + i * 3);
      raw += char(q);
      expected.push_back(float(q) * d);
    }
  }
  file.add("x", {9 * 32, 1024}, 8, raw);
  file.write(path("x.gguf"));
  const auto source = open_gguf(path("x.gguf"));
  EXPECT_EQ(test::read_bytes(*source, source->at("x")), test::bytes_of(expected));
}

TEST_F(Gguf, MetadataOfEveryType) {
  using test::little_endian;
  for (const uint32_t version : {2u, 3u}) {
    GgufFile file;
    file.version = version;
    file.raw("u8", GgufType::u8, little_endian(uint8_t(200)));
    file.raw("i8", GgufType::i8, little_endian(int8_t(-3)));
    file.raw("u16", GgufType::u16, little_endian(uint16_t(60000)));
    file.raw("i16", GgufType::i16, little_endian(int16_t(-300)));
    file.u32("u32", 4000000000u);
    file.raw("i32", GgufType::i32, little_endian(int32_t(-70000)));
    file.raw("u64", GgufType::u64, little_endian(~uint64_t(0)));
    file.raw("i64", GgufType::i64, little_endian(int64_t(-1) << 40));
    file.f32("f32", 0.5f);
    file.raw("f64", GgufType::f64, little_endian(0.1));
    file.flag("yes", true);
    file.text("text", "a\nb 你");
    file.texts("texts", {"", "x"});
    file.integers("integers", {1, -2});
    file.write(path("m.gguf"));
    const auto source = open_gguf(path("m.gguf"));
    const GgufMetadata& m = source->values();
    EXPECT_EQ(m.integer("u8"), 200);
    EXPECT_EQ(m.integer("i8"), -3);
    EXPECT_EQ(m.integer("u16"), 60000);
    EXPECT_EQ(m.integer("i16"), -300);
    EXPECT_EQ(m.integer("u32"), 4000000000);
    EXPECT_EQ(m.integer("i32"), -70000);
    EXPECT_EQ(m.integer("i64"), -(int64_t(1) << 40));
    EXPECT_EQ(m.number("f32"), 0.5);
    EXPECT_EQ(m.number("f64"), 0.1);
    EXPECT_EQ(m.number("u8"), 200);
    EXPECT_EQ(m.find_flag("yes"), true);
    EXPECT_EQ(m.text("text"), "a\nb 你");
    EXPECT_EQ(m.texts("texts"), (GgufStrings{"", "x"}));
    EXPECT_EQ(m.integers("integers"), (GgufIntegers{1, -2}));
    EXPECT_EQ(m.find_integer("none"), std::nullopt);
    const auto why = [&](auto&& f) { return test::message_of<FormatError>(f); };
    EXPECT_NE(why([&] { m.integer("u64"); }).find("63 bits"), std::string::npos);
    EXPECT_NE(why([&] { m.integer("none"); }).find("no 'none'"), std::string::npos);
    EXPECT_NE(why([&] { m.integer("texts"); }).find("'texts' is an array of 2 string, expected"),
              std::string::npos);
  }
}

TEST_F(Gguf, ScalarsAndHighRanks) {
  GgufFile file;
  file.add_f32("scalar", {}, {7});
  file.add_f32("cube", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6});
  file.write(path("x.gguf"));
  const auto source = open_tensor_source(path("x.gguf"));
  EXPECT_EQ(source->format(), "gguf");
  EXPECT_EQ(source->at("scalar").shape, std::vector<int64_t>{});
  EXPECT_EQ(source->at("cube").shape, (std::vector<int64_t>{1, 1, 2, 3}));
}

TEST_F(Gguf, NamesThatLookLikePartsOfAGroupAreTensors) {
  GgufFile file;
  file.add_f32("blk.0.attn_q.scale", {1}, {7});
  file.write(path("x.gguf"));
  const auto source = open_tensor_source(path("x.gguf"));
  const WeightIndex index(*source);
  EXPECT_FALSE(index.at("blk.0.attn_q.scale").packed());
}

TEST_F(Gguf, IsKnownByItsFirstBytes) {
  GgufFile file;
  file.add_f32("a", {1}, {7});
  file.write(path("blob"));
  EXPECT_EQ(open_tensor_source(path("blob"))->format(), "gguf");
}

// Past 4 GiB: a sparse file, so that nothing but the ends exists on disk.
TEST_F(Gguf, OffsetsPast4GiB) {
  const uint64_t large = (uint64_t(5) << 30) / 4;  // elements of the first tensor
  GgufFile file;
  file.add("hole", {large}, 0, "");
  GgufFile::Tensor& last = file.add_f32("last", {2}, {3, 4});
  last.offset = large * 4;
  std::string start = file.header();
  start.resize((start.size() + 31) / 32 * 32);
  {
    std::ofstream out(path("large.gguf"), std::ios::binary);
    out << start;
    out.seekp(std::streamoff(start.size() + last.offset));
    out << last.bytes;
    if (!out) GTEST_SKIP() << "no sparse file of 5 GiB can be made here";
  }
  const auto source = open_gguf(path("large.gguf"));
  EXPECT_EQ(test::read_bytes(*source, source->at("last")), last.bytes);
  std::string zeros(64, 'x');
  source->read(source->at("hole"), (uint64_t(5) << 30) - 64,
               std::as_writable_bytes(std::span(zeros)));
  EXPECT_EQ(zeros, std::string(64, '\0'));
}

class GgufSplit : public test::ScratchTest {
 protected:
  void write_parts() const {
    for (uint16_t i = 0; i < 3; ++i) {
      GgufFile file = part(i, 3, 2);
      if (i > 0) file.add_f32("t" + std::to_string(i), {2}, {float(i), 0.5f});
      file.write(path(name(i)));
    }
  }
  static GgufFile part(uint16_t number, uint16_t count, int32_t tensors) {
    GgufFile file;
    if (number == 0) file.text("general.name", "split");
    file.raw("split.no", GgufType::u16, test::little_endian(number));
    file.raw("split.count", GgufType::u16, test::little_endian(count));
    file.raw("split.tensors.count", GgufType::i32, test::little_endian(tensors));
    return file;
  }
  static std::string name(int i) { return fmt::format("m-0000{}-of-00003.gguf", i + 1); }
  std::string refusal() const {
    return test::message_of<FormatError>([&] { open_gguf(path(name(0))); });
  }
};

TEST_F(GgufSplit, AnyPartOpensAll) {
  write_parts();
  for (int i = 0; i < 3; ++i) {
    const auto source = open_gguf(path(name(i)));
    EXPECT_EQ(source->files().size(), 3u);
    EXPECT_EQ(source->values().text("general.name"), "split");
    EXPECT_EQ(test::read_bytes(*source, source->at("t2")), test::bytes_of<float>({2, 0.5f}));
  }
}

TEST_F(GgufSplit, PartsMustAgree) {
  write_parts();
  std::filesystem::remove(path(name(1)));
  EXPECT_NE(refusal().find("part 2 of 3"), std::string::npos);
  part(2, 3, 2).write(path(name(1)));
  EXPECT_NE(refusal().find("split.no is 2, but by its name it is 1"), std::string::npos);
  part(1, 4, 2).write(path(name(1)));
  EXPECT_NE(refusal().find("split.count is 4, but the name says 3"), std::string::npos);
  part(1, 3, 2).write(path(name(1)));  // without its tensor
  EXPECT_NE(refusal().find("split.tensors.count is 2, but the 3 files hold 1"), std::string::npos);
  GgufFile twice = part(1, 3, 2);
  twice.add_f32("t2", {1}, {1});
  twice.write(path(name(1)));
  EXPECT_NE(refusal().find("'t2' occurs twice"), std::string::npos);
  GgufFile unsaid;
  unsaid.write(path(name(1)));
  EXPECT_NE(refusal().find("no 'split.count'"), std::string::npos);
  part(0, 3, 2).write(path("alone.gguf"));
  const std::string why = test::message_of<FormatError>([&] { open_gguf(path("alone.gguf")); });
  EXPECT_NE(why.find("part 1 of 3 of a split model"), std::string::npos);
}

}  // namespace
}  // namespace nibble
