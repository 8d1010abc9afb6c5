// SPDX-License-Identifier: MIT
#include "formats/dat.h"

#include <fcntl.h>
#include <unistd.h>

#include "formats/files.h"

namespace nibble {
namespace {

using test::append;
using test::message_of;
using test::tensor;

class Dat : public test::ScratchTest {
 protected:
  std::string error_of(std::string_view bytes) {
    const auto p = put("bad.dat", bytes);
    const std::string message = message_of<FormatError>([&] { open_dat(p); });
    EXPECT_NE(message.find("bad.dat"), std::string::npos) << message;
    return message;
  }
  void expect_error(std::string_view bytes, std::string_view part) {
    const std::string message = error_of(bytes);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
};

std::string repeat(const char* text, size_t n) {
  std::string s;
  for (size_t i = 0; i < n; ++i) s += text;
  return s;
}

TEST_F(Dat, HandMadeFileOfEveryTypeCode) {
  struct Row {
    int code;
    DType dtype;
  };
  const std::vector<Row> rows = {{0, DType::u8},    {1, DType::i8},   {2, DType::i16},
                                 {3, DType::i32},   {4, DType::i64},  {5, DType::f16},
                                 {6, DType::f32},   {7, DType::f64},  {11, DType::boolean},
                                 {15, DType::bf16}, {100, DType::u8}, {101, DType::f8_e4m3}};
  std::string file(1, char(rows.size()));
  for (const Row& r : rows) {
    file += "\x02k" + std::string(1, char('0' + (&r - rows.data())));
    file += char(r.code);
    file += "\x02\x01\x03";
    file += std::string(3 * dtype_bytes(r.dtype), char(r.code));
  }
  const auto source = open_dat(put("all.dat", file));
  ASSERT_EQ(source->tensors().size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const TensorInfo& t = source->tensors()[i];
    EXPECT_EQ(t.dat_code, rows[i].code);
    EXPECT_EQ(t.dtype, rows[i].dtype);
    EXPECT_EQ(t.shape, (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(test::read_bytes(*source, t),
              std::string(3 * dtype_bytes(rows[i].dtype), char(rows[i].code)));
    EXPECT_EQ(dat_code_dtype(uint64_t(rows[i].code)), rows[i].dtype);
    if (rows[i].code != 100) {
      EXPECT_EQ(dat_code_for(rows[i].dtype), rows[i].code);
    }
  }
  EXPECT_THROW(dat_code_for(DType::c128), InternalError);
}

TEST_F(Dat, HeaderBytesAreCanonical) {
  DatWriter w(path("x.dat"), {tensor("a", DType::f16, {300, 0}), tensor("b", DType::u8, {}, 100)});
  append(w, "Z");
  w.finish();
  using namespace std::string_literals;
  EXPECT_EQ(read_text_file(path("x.dat")),
            "\x02\x01"
            "a\x05\x02\xac\x02\x00\x01"
            "b\x64\x00Z"s);
  const auto source = open_dat(path("x.dat"));
  EXPECT_EQ(source->at("a").n_bytes, 0u) << "an empty tensor is a tensor";
  EXPECT_EQ(source->at("b").shape.size(), 0u);
  EXPECT_EQ(source->at("b").dat_code, 100);
  EXPECT_EQ(source->find("c"), nullptr);
  EXPECT_THROW(source->at("c"), FormatError);
}

TEST_F(Dat, EmptyFileAndNoEntries) {
  expect_error("", "ends inside the entry count");
  EXPECT_TRUE(open_dat(put("none.dat", std::string(1, '\0')))->tensors().empty());
}

TEST_F(Dat, PredecessorFileIsRewrittenByteForByte) {
  const auto original = test::golden("predecessor/model-nvfp4.dat");
  const auto source = open_dat(original);
  EXPECT_EQ(source->tensors().size(), 40u);
  EXPECT_EQ(source->tensors()[0].name, "model.embed_tokens.weight");
  for (const size_t chunk : {7u, 1000u, 1u << 20}) {
    DatWriter w(path("copy.dat"), source->tensors());
    test::copy_payloads(*source, w, chunk);
    EXPECT_TRUE(read_text_file(path("copy.dat")) == read_text_file(original)) << chunk;
  }
}

TEST_F(Dat, UnknownTypeCodesNameKeyCodeAndOffset) {
  using namespace std::string_literals;
  const std::string m = error_of("\x01\x03key\xe7\x24\x01\x01Z"s);  // 4711
  EXPECT_NE(m.find("'key'"), std::string::npos) << m;
  EXPECT_NE(m.find("4711"), std::string::npos) << m;
  EXPECT_NE(m.find("offset 5"), std::string::npos) << m;
  for (const int code : {8, 9, 10, 12, 13, 14, 16, 99, 102}) {
    expect_error("\x01\x01k"s + char(code) + "\x00"s + "ZZZZZZZZ",
                 "type code " + std::to_string(code) + " ");
  }
}

TEST_F(Dat, NumbersMustBeCanonicalAndFit) {
  using namespace std::string_literals;
  expect_error("\x81\x00"s, "padded");
  expect_error("\x01\x01k\x00\x01\x81\x80\x00Z"s, "padded");
  expect_error("\x01\x01k\x00\x01" + repeat("\x80", 10) + "\x01", "64 bits");
  expect_error("\x01\x01k\x00\x01"s + repeat("\xff", 9) + "\x02", "64 bits");
  expect_error("\x01\x01k\x00\x01"s + repeat("\xff", 9) + "\x01", "dimension");          // 2^64 - 1
  expect_error("\x01\x01k\x00\x01"s + repeat("\xff", 8) + "\x7f", "bytes, 0 are left");  // 2^63 - 1
  expect_error("\x01\x01k\x06\x01"s + repeat("\xff", 8) + "\x7f", "larger than any file");
  const std::string big = repeat("\x80", 8) + "\x01";  // 2^56
  expect_error("\x01\x01k\x00\x03"s + big + big + "\x00"s, "larger than any file");
}

TEST_F(Dat, KeysRanksAndCounts) {
  using namespace std::string_literals;
  expect_error("\x01\x00\x00\x00Z"s, "key of 0 bytes");
  expect_error("\x01\x81\x20" + std::string(4097, 'k') + "\x00\x00Z"s, "key of 4097 bytes");
  const auto longest =
      open_dat(put("k.dat", "\x01\x80\x20" + std::string(4096, 'k') + "\x00\x00Z"s));
  EXPECT_EQ(longest->tensors()[0].name.size(), 4096u);
  expect_error("\x01\x02\xc3\x28\x00\x00Z"s, "UTF-8");
  expect_error("\x01\x03\xed\xa0\x80\x00\x00Z"s, "UTF-8");  // a surrogate
  expect_error("\x01\x02\xc0\x80\x00\x00Z"s, "UTF-8");      // overlong NUL
  EXPECT_EQ(open_dat(put("u.dat", "\x01\x02\xc3\xa9\x00\x00Z"s))->tensors()[0].name, "\xc3\xa9");
  expect_error("\x01\x01k\x00\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01Z"s, "rank 9");
  EXPECT_EQ(open_dat(put("r.dat", "\x01\x01k\x00\x08\x01\x01\x01\x01\x01\x01\x01\x01Z"s))
                ->tensors()[0]
                .shape.size(),
            8u);
  expect_error("\xff\xff\xff\x7f"s, "entries");
  expect_error("\x02\x01k\x00\x00Z"s, "ends inside the key length");
}

TEST_F(Dat, RepeatedKeysTrailingBytesAndTruncation) {
  using namespace std::string_literals;
  expect_error("\x02\x01k\x00\x00Z\x01k\x00\x00Z"s, "twice");
  expect_error("\x01\x01k\x00\x00ZY"s, "1 bytes follow");
  expect_error("\x01\x01k\x06\x01\x02ZZZZZZZ"s, "needs 8 bytes, 7 are left");
}

TEST_F(Dat, NothingAppearsBeforeFinish) {
  {
    DatWriter w(path("x.dat"), {tensor("a", DType::u8, {4})});
    append(w, "abcd");
    EXPECT_FALSE(std::filesystem::exists(path("x.dat")));
  }
  EXPECT_TRUE(listing().empty()) << "an abandoned writer leaves nothing";
  put("x.dat", "old");
  {
    DatWriter w(path("x.dat"), {tensor("a", DType::u8, {4})});
    append(w, "abc");
    EXPECT_THROW(w.finish(), InternalError) << "one byte is missing";
  }
  EXPECT_EQ(read_text_file(path("x.dat")), "old") << "the old file survives";
  DatWriter w(path("x.dat"), {tensor("a", DType::u8, {4})});
  append(w, "abcd");
  EXPECT_THROW(append(w, "e"), InternalError);
  w.finish();
  EXPECT_THROW(w.finish(), InternalError);
  EXPECT_EQ(listing(), std::vector<std::string>{"x.dat"});
}

TEST_F(Dat, WriterRefusesImpossibleTensors) {
  const auto refuse = [&](std::vector<TensorInfo> t) {
    EXPECT_THROW(DatWriter(path("x.dat"), std::move(t)), InternalError);
  };
  refuse({tensor("a", DType::u8, {1}), tensor("a", DType::u8, {1})});
  refuse({tensor("", DType::u8, {1})});
  refuse({tensor("\xff", DType::u8, {1})});
  refuse({tensor("a", DType::u8, {-1})});
  refuse({tensor("a", DType::f32, {int64_t(1) << 40, int64_t(1) << 40})});
  refuse({tensor("a", DType::u8, {1}, 4711)});
  refuse({tensor("a", DType::c128, {1})});
  refuse({tensor("a", DType::u8, {1, 1, 1, 1, 1, 1, 1, 1, 1})});
  EXPECT_TRUE(listing().empty());
}

TEST_F(Dat, EntriesBeyondFourGibibytes) {
  using namespace std::string_literals;
  // 5 GiB of u8 in a sparse file, then one more entry.
  const std::string head =
                        "\x02\x03"
                        "big\x00\x01\x80\x80\x80\x80\x14"s,
                    tail = "\x01t\x06\x01\x01\x01\x02\x03\x04"s;
  const uint64_t big = uint64_t(5) << 30;
  const auto p = put("sparse.dat", head);
  const int fd = ::open(p.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const bool ok =
      ::pwrite(fd, tail.data(), tail.size(), off_t(head.size() + big)) == ssize_t(tail.size()) &&
      ::pwrite(fd, "\x2a", 1, off_t(head.size() + big - 1)) == 1;
  ::close(fd);
  if (!ok) GTEST_SKIP() << "this file system takes no sparse file of 5 GiB";
  const auto source = open_dat(p);
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->at("big").n_bytes, big);
  std::byte last[2];
  source->read(source->at("big"), big - 2, last);
  EXPECT_EQ(last[0], std::byte(0));
  EXPECT_EQ(last[1], std::byte(0x2a));
  EXPECT_EQ(test::read_bytes(*source, source->at("t")), "\x01\x02\x03\x04");
  EXPECT_THROW(source->read(source->at("big"), big - 1, last), InternalError);
}

}  // namespace
}  // namespace nibble
