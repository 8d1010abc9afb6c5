// SPDX-License-Identifier: MIT
// Damaged GGUF files: each is a FormatError that says what is wrong and where, and never anything
// else. damage_test.cpp has the cuts and flipped bits.
#include <functional>

#include "formats/files.h"
#include "formats/gguf/gguf.h"
#include "support/gguf_file.h"

namespace nibble {
namespace {

using test::GgufFile;
using test::little_endian;

struct Case {
  std::string name;
  std::string says;  // part of the message
  std::function<void(GgufFile&)> breaks;
};

std::string array_start(GgufType type, uint64_t n) {
  return little_endian(uint32_t(type)) + little_endian(n);
}

const Case kCases[] = {
    {"Magic", "does not begin with 'GGUF'", [](GgufFile& f) { f.magic = "GGJT"; }},
    {"Version1", "version 1 of the format", [](GgufFile& f) { f.version = 1; }},
    {"BigEndian", "big-endian", [](GgufFile& f) { f.version = 3u << 24; }},
    {"TooManyTensors", "tensors in a file of", [](GgufFile& f) { f.more_tensors = 1 << 20; }},
    {"TensorCountTooLarge", "", [](GgufFile& f) { f.more_tensors = 1; }},
    {"TensorCountTooSmall", "", [](GgufFile& f) { f.more_tensors = -1; }},
    {"TooManyKeys", "keys in a file of", [](GgufFile& f) { f.more_keys = int64_t(1) << 60; }},
    {"KeyCountTooLarge", "", [](GgufFile& f) { f.more_keys = 1; }},
    {"KeyCountTooSmall", "", [](GgufFile& f) { f.more_keys = -1; }},
    {"DuplicateKey", "the key occurs twice", [](GgufFile& f) { f.u32("k", 1), f.u32("k", 2); }},
    {"EmptyKey", "the key is empty", [](GgufFile& f) { f.u32("", 1); }},
    {"KeyNotText", "not UTF-8", [](GgufFile& f) { f.u32("\xff", 1); }},
    {"UnknownType", "none of the format's 13", [](GgufFile& f) { f.raw("k", GgufType(13), ""); }},
    {"HugeString", "a string of 9223372036854775807 bytes",
     [](GgufFile& f) { f.raw("k", GgufType::string, little_endian(INT64_MAX)); }},
    {"LongString", "a string of 50000000 bytes, ",
     [](GgufFile& f) { f.raw("k", GgufType::string, little_endian(uint64_t(50000000))); }},
    {"StringNotText", "not UTF-8", [](GgufFile& f) { f.text("k", "\xc0\xaf"); }},
    {"Boolean", "a boolean is 2",
     [](GgufFile& f) { f.raw("k", GgufType::boolean, little_endian(uint8_t(2))); }},
    {"HugeArray", "an array of 18446744073709551615 u8 needs more",
     [](GgufFile& f) { f.raw("k", GgufType::array, array_start(GgufType::u8, ~0ull)); }},
    {"ArrayOfHugeStrings", "a string of 18446744073709551615 bytes",
     [](GgufFile& f) {
       f.raw("k", GgufType::array, array_start(GgufType::string, 1) + little_endian(~0ull));
     }},
    {"ArrayOfArrays", "an array of arrays",
     [](GgufFile& f) {
       std::string nested;
       for (int i = 0; i < 10000; ++i) nested += array_start(GgufType::array, 1);
       f.raw("k", GgufType::array, nested);
     }},
    {"LargeElement", "over 63 bits",
     [](GgufFile& f) {
       f.raw("k", GgufType::array, array_start(GgufType::u64, 1) + little_endian(~0ull));
     }},
    {"AlignmentZero", "'general.alignment' is 0, expected",
     [](GgufFile& f) { f.u32("general.alignment", 0); }},
    {"AlignmentOdd", "'general.alignment' is 48, expected",
     [](GgufFile& f) { f.u32("general.alignment", 48); }},
    {"AlignmentText", "'general.alignment' is a string",
     [](GgufFile& f) { f.text("general.alignment", "32"); }},
    {"DuplicateName", "the name occurs twice", [](GgufFile& f) { f.tensors[1].name = "a"; }},
    {"EmptyName", "the name is empty", [](GgufFile& f) { f.tensors[1].name = ""; }},
    {"ZeroDimension", "dimension 1 is 0",
     [](GgufFile& f) {
       f.tensors[1].dims = {64, 0};
     }},
    {"NegativeDimension", "dimension 0 is -1", [](GgufFile& f) { f.tensors[1].dims = {~0ull}; }},
    {"TooManyDimensions", "9 dimensions",
     [](GgufFile& f) { f.tensors[1].dims = std::vector<uint64_t>(9, 1); }},
    {"OverflowingProduct", "larger than any file",
     [](GgufFile& f) {
       f.tensors[1].dims = {uint64_t(1) << 32, uint64_t(1) << 32};
     }},
    {"OverflowingBytes", "larger than any file",
     [](GgufFile& f) {
       f.tensors[1].dims = {uint64_t(1) << 31, uint64_t(1) << 31};
     }},
    {"UnknownBlocks", "elements of type 99 are not", [](GgufFile& f) { f.tensors[1].type = 99; }},
    {"RemovedBlocks", "type 31 (Q4_0_4_4)", [](GgufFile& f) { f.tensors[1].type = 31; }},
    {"BrokenBlocks", "rows of 31 elements are not whole blocks of 32 (Q4_0)",
     [](GgufFile& f) {
       f.tensors[1].dims = {31, 64}, f.tensors[1].type = 2;
     }},
    {"Misaligned", "no multiple of 32", [](GgufFile& f) { f.tensors[1].offset = 260; }},
    {"Overlap", "(overlap; offset", [](GgufFile& f) { f.tensors[1].offset = 0; }},
    {"OverlapInPart", "(overlap; offset", [](GgufFile& f) { f.tensors[1].offset = 224; }},
    {"Hole", "(a hole", [](GgufFile& f) { f.tensors[1].offset = 512; }},
    {"OffsetPastTheEnd", "(a hole", [](GgufFile& f) { f.tensors[1].offset = ~31ull; }},
    {"LargerThanTheFile", "(cut?)", [](GgufFile& f) { f.tensors[1].dims = {4096}; }},
    {"TrailingBytes", "bytes follow the last of 2",
     [](GgufFile& f) { f.tensors[1].bytes.resize(4096); }},
};

class GgufDamage : public test::ScratchTest {
 protected:
  static GgufFile good() {
    GgufFile f;
    f.text("general.name", "x");
    f.add_f32("a", {64}, std::vector<float>(64, 1));
    f.add_f32("b", {64}, std::vector<float>(64, 2));
    return f;
  }
};

TEST_F(GgufDamage, EachIsRefusedWithPlaceAndReason) {
  good().write(path("x.gguf"));
  ASSERT_EQ(open_gguf(path("x.gguf"))->tensors().size(), 2u);
  for (const Case& c : kCases) {
    GgufFile file = good();
    c.breaks(file);
    file.write(path("x.gguf"));
    const std::string why = test::message_of<FormatError>([&] { open_gguf(path("x.gguf")); });
    EXPECT_NE(why.find(c.says), std::string::npos) << c.name << ": " << why;
    EXPECT_NE(why.find("x.gguf"), std::string::npos) << c.name << ": " << why;
    EXPECT_TRUE(why.find("offset") != std::string::npos || why.find("byte") != std::string::npos)
        << c.name << ": " << why;
  }
}

}  // namespace
}  // namespace nibble
