// SPDX-License-Identifier: MIT
#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/mini_tokenizer.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

Tokenizer mini() {
  static const Tokenizer t = Tokenizer::parse(test::mini_tokenizer_text(), "mini");
  return t;
}

TEST(StreamDecoder, holds_back_part_of_a_character) {
  StreamDecoder d(mini());
  EXPECT_EQ(d.push('a'), "a");
  EXPECT_EQ(d.push(0xf0), "");
  EXPECT_EQ(d.push(0x9f), "");
  EXPECT_TRUE(d.pending());
  EXPECT_EQ(d.push(0x98), "");
  EXPECT_EQ(d.push(0x80), "\U0001f600");
  EXPECT_FALSE(d.pending());
  EXPECT_EQ(d.push(0xe4), "");
  EXPECT_EQ(d.push('b'),
            "\ufffd"
            "b");
  EXPECT_EQ(d.push(0xe4), "");
  EXPECT_EQ(d.push(0xbd), "");
  EXPECT_EQ(d.flush(), "\ufffd");
  EXPECT_EQ(d.flush(), "");
  EXPECT_EQ(d.push(0xa0), "\ufffd");
}

TEST(StreamDecoder, skips_special_tokens_when_asked) {
  const int32_t end = *mini().im_end(), think = *mini().id_of("<think>");
  StreamDecoder keep(mini()), skip(mini(), DecodeSpecial::skip);
  EXPECT_EQ(keep.push(end), "<|im_end|>");
  EXPECT_EQ(skip.push(end), "");
  EXPECT_EQ(skip.push(think), "<think>");
  // A skipped token between two halves of a character does not break it.
  EXPECT_EQ(skip.push(0xc3), "");
  EXPECT_EQ(skip.push(end), "");
  EXPECT_EQ(skip.push(0xa9), "\u00e9");
}

// Random ids are mostly invalid UTF-8: every prefix streamed must be a prefix of the whole, and
// valid UTF-8 by itself.
TEST(StreamDecoder, equals_whole_decoding_at_every_split) {
  auto random = [engine = std::mt19937(2)]() mutable { return uint32_t(engine()); };
  const int32_t lead[] = {0xc3, 0xe0, 0xe4, 0xed, 0xf0, 0xf4, 0x80,
                          0x9f, 0xa0, 0xbd, 0xbf, 'a',  261};
  for (int i = 0; i < 20000; ++i) {
    std::vector<int32_t> ids;
    for (unsigned n = random() % 9; n > 0; --n) {
      ids.push_back(random() % 4 ? lead[random() % std::size(lead)] : int32_t(random() % 270));
    }
    for (const DecodeSpecial how : {DecodeSpecial::keep, DecodeSpecial::skip}) {
      const std::string whole = mini().decode(ids, how);
      for (size_t cut = 0; cut <= ids.size(); ++cut) {
        StreamDecoder d(mini(), how);
        std::string text;
        for (size_t k = 0; k < ids.size(); ++k) {
          if (k == cut) {
            ASSERT_EQ(whole.compare(0, text.size(), text), 0);
            ASSERT_EQ(valid_utf8_prefix(text), text.size());
          }
          text += d.push(ids[k]);
        }
        text += d.flush();
        ASSERT_EQ(text, whole);
      }
    }
  }
}

}  // namespace
}  // namespace nibble
