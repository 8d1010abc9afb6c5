// SPDX-License-Identifier: MIT
#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <chrono>
#include <cstdlib>
#include <random>

namespace nibble {
namespace {

std::string utf8(char32_t c) {
  std::string s;
  append_utf8(s, c);
  return s;
}

bool is_scalar(char32_t c) { return c < 0xd800 || c >= 0xe000; }

std::string reference_nfc(const std::string& s) {
  utf8proc_uint8_t* out = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(s.data()), utf8proc_ssize_t(s.size()),
                   &out, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(n, 0);
  std::string r(reinterpret_cast<char*>(out), size_t(n));
  std::free(out);
  return r;
}

std::string nfc(const std::string& s) {
  std::string storage;
  return std::string(normalize_nfc(s, storage));
}

TEST(Unicode, encode_and_decode_every_code_point) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!is_scalar(c)) continue;
    const std::string s = utf8(c);
    const CodePoint back = decode_valid(s.data());
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.length, s.size());
    ASSERT_EQ(valid_utf8_prefix(s), s.size());
  }
}

// The table is newer than utf8proc's: it may know letters that utf8proc calls unassigned, but they
// never disagree on a character both know.
TEST(Unicode, classes_agree_with_utf8proc) {
  const UnicodeTable& table = UnicodeTable::instance();
  int letters = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const auto category = utf8proc_category(utf8proc_int32_t(c));
    if (!is_scalar(c) || category == UTF8PROC_CATEGORY_CN) continue;
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    const bool space = (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) ||
                       (c >= 9 && c <= 13) || c == 0x85;
    const CharClass want = letter   ? CharClass::letter
                           : number ? CharClass::number
                           : space  ? CharClass::space
                                    : CharClass::other;
    ASSERT_EQ(int(table.char_class(c)), int(want)) << std::hex << uint32_t(c);
    letters += letter;
  }
  EXPECT_GT(letters, 130000);
}

TEST(Unicode, nfc_of_every_code_point_and_its_decomposition) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!is_scalar(c)) continue;
    const std::string s = utf8(c);
    ASSERT_EQ(nfc(s), reference_nfc(s)) << std::hex << uint32_t(c);
    const std::string between = "e" + s + "\u0301";
    ASSERT_EQ(nfc(between), reference_nfc(between)) << std::hex << uint32_t(c);
    const std::string hangul = "\u1100" + s + "\u1161\u0323";
    ASSERT_EQ(nfc(hangul), reference_nfc(hangul)) << std::hex << uint32_t(c);
  }
}

TEST(Unicode, nfc_of_random_sequences) {
  auto random = [engine = std::mt19937(7)]() mutable { return uint32_t(engine()); };
  const char32_t starts[] = {0x20,   0x41,   0x300,  0x310,  0x323,  0x338,   0x5b0,
                             0x600,  0x900,  0x9be,  0xdcf,  0x1100, 0x1161,  0x11a8,
                             0x1e00, 0x3040, 0x3099, 0xac00, 0xf900, 0x1d160, 0x2f800};
  for (int i = 0; i < 200000; ++i) {
    std::string s;
    for (unsigned n = 1 + random() % 8; n > 0; --n) {
      s += utf8(starts[random() % std::size(starts)] + random() % 16);
    }
    ASSERT_EQ(nfc(s), reference_nfc(s));
  }
}

TEST(Unicode, nfc_returns_the_text_itself_when_nothing_changes) {
  const std::string s = "plain, \u4f60\u597d, caf\u00e9";
  std::string storage;
  EXPECT_EQ(normalize_nfc(s, storage).data(), s.data());
  EXPECT_EQ(nfc("cafe\u0301!"), "caf\u00e9!");
  EXPECT_EQ(nfc(""), "");
}

// Ordering marks one by one would take minutes here.
TEST(Unicode, nfc_of_a_long_run_of_marks_is_fast_and_right) {
  std::string marks, want = "a";
  const int n = 300000;
  for (int i = 0; i < n; ++i) marks += i % 2 ? "\u0334" : "\u0345";
  for (int i = 0; i < n / 2; ++i) want += "\u0334";
  for (int i = 0; i < n / 2; ++i) want += "\u0345";
  EXPECT_TRUE(nfc("a" + marks) == want);
  auto random = [engine = std::mt19937(3)]() mutable { return uint32_t(engine()); };
  for (int i = 0; i < 50; ++i) {  // long enough for that path, short enough for the reference
    std::string s = "a";
    while (s.size() < 1500) s += utf8(0x300 + random() % 0x70);
    ASSERT_EQ(nfc(s), reference_nfc(s));
  }
}

TEST(Unicode, repair_replaces_maximal_invalid_parts) {
  const std::string bad = "\ufffd";
  EXPECT_EQ(repair_utf8("ok"), "ok");
  EXPECT_EQ(repair_utf8("\xff"), bad);
  EXPECT_EQ(repair_utf8("a\xe4\xbd"
                        "b"),
            "a" + bad + "b");  // a cut character: one
  EXPECT_EQ(repair_utf8("\xe4\xbd"), bad);
  EXPECT_EQ(repair_utf8("\xf0\x9f\x98"), bad);
  EXPECT_EQ(repair_utf8("\xc0\x80"), bad + bad);  // overlong
  EXPECT_EQ(repair_utf8("\xe0\x80\x80"), bad + bad + bad);
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(repair_utf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
  EXPECT_EQ(repair_utf8("\xe4\xe4\xbd\xa0"), bad + "\u4f60");
}

}  // namespace
}  // namespace nibble
