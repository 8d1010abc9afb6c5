// SPDX-License-Identifier: MIT
// The hand-written scanner against PCRE2 running the pattern itself.
#include "tokenizer/pretokenize.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <ctime>
#include <map>
#include <random>

#include "core/error.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

std::vector<std::string> pieces(const std::string& text, const std::vector<uint32_t>& ends) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (const uint32_t end : ends) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}
std::vector<std::string> fast(const std::string& text) {
  std::vector<uint32_t> ends;
  split_qwen(text, ends);
  return pieces(text, ends);
}
std::vector<std::string> regex(const RegexSplitter& r, const std::string& text) {
  std::vector<uint32_t> ends;
  r.split(text, ends);
  return pieces(text, ends);
}
using Pieces = std::vector<std::string>;

TEST(Pretokenize, known_splits) {
  EXPECT_EQ(fast("I'm WE'LL don'T 'x"), (Pieces{"I", "'m", " WE", "'LL", " don", "'T", " '", "x"}));
  EXPECT_EQ(fast("a  b   c \n  d  "), (Pieces{"a", " ", " b", "  ", " c", " \n", " ", " d", "  "}));
  EXPECT_EQ(fast("x12 3!?\r\n\n y"), (Pieces{"x", "1", "2", " ", "3", "!?\r\n\n", " y"}));
  EXPECT_EQ(fast("\u00a0nbsp\u3000\u3000x"), (Pieces{"\u00a0nbsp", "\u3000", "\u3000x"}));
  EXPECT_EQ(fast("(a) <b>"), (Pieces{"(a", ")", " <", "b", ">"}));
  EXPECT_EQ(fast("'\u017fa"), (Pieces{"'\u017f", "a"}));
  EXPECT_EQ(fast(""), Pieces{});
}

// One representative of everything the installed PCRE2 and our table class alike; characters newer
// than PCRE2's Unicode are left out (general category Cn for utf8proc, or listed in neither).
std::vector<char32_t> comparable_characters() {
  const RegexSplitter letter(R"(\p{L})"), number(R"(\p{N})"), space(R"(\s)");
  const UnicodeTable& table = UnicodeTable::instance();
  std::vector<char32_t> out;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string s = "\u0001";  // a match cuts the text in two
    append_utf8(s, c);
    const auto matches = [&s](const RegexSplitter& r) { return regex(r, s).size() == 2; };
    const CharClass theirs = matches(letter)   ? CharClass::letter
                             : matches(number) ? CharClass::number
                             : matches(space)  ? CharClass::space
                                               : CharClass::other;
    if (theirs == table.char_class(c)) {
      out.push_back(c);
    } else {  // only because PCRE2 does not know the character yet
      EXPECT_EQ(int(theirs), int(CharClass::other)) << std::hex << uint32_t(c);
    }
  }
  return out;
}

TEST(Pretokenize, equals_the_pattern_on_every_character_in_every_setting) {
  const RegexSplitter reference(kQwenPattern);
  const std::vector<char32_t> characters = comparable_characters();
  EXPECT_GT(characters.size(), 1'090'000u);
  std::string batch;
  for (const char32_t c : characters) {
    std::string s;
    append_utf8(s, c);
    batch += "a" + s + " " + s + "1" + s + s + "b\n" + s + "\n " + s + "'" + s + "  " + s + "! ";
    if (batch.size() > 4000) {
      ASSERT_EQ(fast(batch), regex(reference, batch)) << std::hex << uint32_t(c);
      batch.clear();
    }
  }
}

TEST(Pretokenize, equals_the_pattern_on_random_text) {
  const RegexSplitter reference(kQwenPattern);
  std::map<int, std::vector<char32_t>> by_category;
  for (const char32_t c : comparable_characters()) {
    by_category[utf8proc_category(utf8proc_int32_t(c))].push_back(c);
  }
  std::vector<const std::vector<char32_t>*> categories;
  for (const auto& [category, list] : by_category) categories.push_back(&list);
  EXPECT_GE(categories.size(), 29u);  // all of Unicode's but surrogates
  const char* fixed[] = {" ",      "  ",     "\n",     "\r",     "\r\n",   "\t",     "'",
                         "'s",     "'LL",    "'rE",    "a",      "Z",      "1",      "!",
                         "\u0085", "\u00a0", "\u3000", "\u2028", "\u180e", "\u017f", "'l",
                         "'v",     ".",      "\u4f60", "\u0301"};
  auto random = [engine = std::mt19937(11)]() mutable { return uint32_t(engine()); };
  for (int i = 0; i < 300000; ++i) {
    std::string s;
    for (unsigned n = 1 + random() % 12; n > 0; --n) {
      if (random() % 3) {
        s += fixed[random() % std::size(fixed)];
      } else {
        const auto& list = *categories[random() % categories.size()];
        append_utf8(s, list[random() % list.size()]);
      }
    }
    ASSERT_EQ(fast(s), regex(reference, s)) << s;
  }
}

TEST(RegexSplitter, keeps_what_lies_between_matches) {
  EXPECT_EQ(regex(RegexSplitter("[0-9]+"), "ab12c3"), (Pieces{"ab", "12", "c", "3"}));
  EXPECT_EQ(regex(RegexSplitter("x"), "abc"), (Pieces{"abc"}));
  EXPECT_EQ(regex(RegexSplitter("(?=b)"), "abab"), (Pieces{"a", "ba", "b"}));  // empty matches
  EXPECT_EQ(regex(RegexSplitter("z*"), "\u4f60\u597d"), (Pieces{"\u4f60", "\u597d"}));
  EXPECT_EQ(regex(RegexSplitter(kGpt2Pattern), "it's 123 x"), (Pieces{"it", "'s", " 123", " x"}));
  EXPECT_EQ(regex(RegexSplitter(R"(\s)"), "a\u180eb"), (Pieces{"a\u180e"
                                                               "b"}));
}

TEST(RegexSplitter, refuses_what_it_cannot_run_faithfully) {
  for (const char* bad : {"(", R"(\w+)", R"(\bx)", R"(\h)", R"(\Kx)", "(*LIMIT_MATCH=1)a", "a\\",
                          "[z-a]", R"(\p{Nonsense})", R"(\1)"}) {
    EXPECT_THROW(RegexSplitter{bad}, UsageError) << bad;
  }
  EXPECT_THROW(RegexSplitter(std::string(5000, 'a')), UsageError);
}

// A match sees a window of the text first: pieces longer than it, and what looks ahead at its edge,
// come out as they would of the whole.
TEST(RegexSplitter, long_pieces_are_found_whole) {
  const RegexSplitter reference(kQwenPattern);
  auto random = [engine = std::mt19937(5)]() mutable { return uint32_t(engine()); };
  const std::string_view runs[] = {"a", " ", "\n", "\u4f60", "1", "!", "\u00a0", "\r\n", "'s"};
  for (int i = 0; i < 2000; ++i) {
    std::string s;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const std::string_view unit = runs[random() % std::size(runs)];
      for (unsigned k = random() % 600; k > 0; --k) s += unit;
    }
    ASSERT_EQ(fast(s), regex(reference, s)) << s;
  }
  EXPECT_EQ(regex(RegexSplitter("x"), std::string(9000, 'a') + "x"),
            (Pieces{std::string(9000, 'a'), "x"}));
  EXPECT_EQ(regex(RegexSplitter("b(?=a{500}c)"), "b" + std::string(500, 'a') + "cb"),
            (Pieces{"b", std::string(500, 'a') + "cb"}));
}

TEST(RegexSplitter, known_patterns_take_a_megabyte_of_anything) {
  constexpr std::string_view kLlama3 =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  for (const std::string_view unit : {"a", " ", "\n", "!", "1", " x", "a\n", "\u4f60", "  \n"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    text += "x";
    for (const std::string_view pattern : {kGpt2Pattern, kLlama3, kQwenPattern}) {
      EXPECT_FALSE(regex(RegexSplitter(pattern), text).empty()) << unit;
    }
  }
}

// Each match is quick, and there are as many as bytes: the square of the text.
TEST(RegexSplitter, a_quadratic_pattern_is_an_error_not_a_wait) {
  const std::string text(1 << 20, 'a');
  for (const char* pattern : {"a+b|a", "(?:a|aa)*b|a", "a*a*b|a", "a(?=a*b)|a", "(?=a+b)a|a"}) {
    const RegexSplitter r(pattern);
    const std::clock_t start = std::clock();
    std::vector<uint32_t> ends;
    EXPECT_THROW(r.split(text, ends), FormatError) << pattern;
    EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, 30) << pattern;
  }
}

TEST(RegexSplitter, a_pattern_that_explodes_is_an_error_not_a_wait) {
  const RegexSplitter r("(a+)+(a+)+(a+)+$");
  std::vector<uint32_t> ends;
  EXPECT_THROW(r.split(std::string(2000, 'a') + "b", ends), FormatError);
}

}  // namespace
}  // namespace nibble
