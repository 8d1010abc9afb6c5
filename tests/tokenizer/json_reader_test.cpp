// SPDX-License-Identifier: MIT
#include "tokenizer/json_reader.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace nibble {
namespace {

std::string string_of(const std::string& text) {
  JsonReader r(text, "t");
  std::string storage;
  return std::string(r.read_string(storage));
}

TEST(JsonReader, strings) {
  EXPECT_EQ(string_of(R"( "plain" )"), "plain");
  EXPECT_EQ(string_of(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(string_of(R"("\u0120x\u00e9\ud83d\ude00\u4F60")"), "\u0120x\u00e9\U0001f600\u4f60");
  for (const char* bad : {"\"", "\"abc", "\"\\", "\"\\x\"", "\"\\u12", "\"\\u12g4\"", "\"\\ud800\"",
                          "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"a\nb\"", "abc", ""}) {
    EXPECT_THROW(string_of(bad), FormatError) << bad;
  }
}

TEST(JsonReader, numbers) {
  const auto number = [](const std::string& text) { return JsonReader(text, "t").read_uint32(); };
  EXPECT_EQ(number("0"), 0u);
  EXPECT_EQ(number(" 2147483647,"), 2147483647u);
  for (const char* bad :
       {"-1", "01", "1.0", "1e3", "2147483648", "99999999999999999999", "", "x"}) {
    EXPECT_THROW(number(bad), FormatError) << bad;
  }
}

TEST(JsonReader, skipping_a_value) {
  const auto skip = [](const std::string& text) {
    return std::string(JsonReader(text, "t").skip_value());
  };
  EXPECT_EQ(skip(R"( {"a": [1, "]}\"", {}]} , 5)"), R"({"a": [1, "]}\"", {}]})");
  EXPECT_EQ(skip("null]"), "null");
  EXPECT_EQ(skip("-1.5e3"), "-1.5e3");
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  for (const std::string& bad : {std::string("{]"), std::string("[1"), std::string(""),
                                 std::string("]"), std::string("[\"a"), deep}) {
    EXPECT_THROW(skip(bad), FormatError) << bad;
  }
}

TEST(JsonReader, messages_name_file_section_and_offset) {
  JsonReader r("   x", "some/file.json");
  r.set_section("model.vocab");
  try {
    r.expect('{');
    FAIL();
  } catch (const FormatError& e) {
    EXPECT_STREQ(e.what(), "some/file.json: model.vocab, at byte 3: expected '{'");
  }
}

}  // namespace
}  // namespace nibble
