// SPDX-License-Identifier: MIT
#include "apps/editor/key_decoder.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble::test {
namespace {

std::vector<Key> keys_of(std::string_view bytes) {
  KeyDecoder d;
  d.add(bytes);
  std::vector<Key> keys;
  while (const auto k = d.next()) keys.push_back(k->key);
  return keys;
}

TEST(KeyDecoder, Sequences) {
  EXPECT_EQ(keys_of("\x1b[A\x1bOB\x1b[1;5D\x1b[3~\x7f\x03\x04\r"),
            (std::vector<Key>{Key::up, Key::down, Key::word_left, Key::erase_right, Key::backspace,
                              Key::interrupt, Key::end_of_input, Key::enter}));
  EXPECT_EQ(keys_of("\x1b\r"), (std::vector<Key>{Key::new_line}));
  EXPECT_EQ(keys_of("\x1b[99;99Zx"), (std::vector<Key>{Key::unknown, Key::text}));
}

TEST(KeyDecoder, SequencesThatMeanNothingLeaveNothing) {
  EXPECT_EQ(keys_of("\x1b[[Ax"), (std::vector<Key>{Key::unknown, Key::text}));  // F1
  EXPECT_EQ(keys_of("\x1b你x"), (std::vector<Key>{Key::unknown, Key::text}));   // Alt and a key
  EXPECT_EQ(keys_of("\x1b\x03"), (std::vector<Key>{Key::give_up, Key::interrupt}));
  KeyDecoder d;
  d.add("\x1b\xe4\xbd");
  EXPECT_FALSE(d.next());
  EXPECT_TRUE(d.has_open_escape());
  d.add("\xa0");
  EXPECT_EQ(d.next()->key, Key::unknown);
  d.add("\xe4\xbd");
  EXPECT_FALSE(d.next());
  EXPECT_FALSE(d.has_open_escape());
}

TEST(KeyDecoder, BytesThatComeInPieces) {
  KeyDecoder d;
  for (const char c : std::string("\x1b[1;5")) {
    d.add({&c, 1});
    EXPECT_FALSE(d.next());
  }
  d.add("C");
  EXPECT_EQ(d.next()->key, Key::word_right);
  const std::string wide = "你";
  d.add(wide.substr(0, 2));
  EXPECT_FALSE(d.next());
  d.add(wide.substr(2));
  EXPECT_EQ(d.next()->text, wide);
  d.add("\x1b");
  EXPECT_FALSE(d.next());
  EXPECT_EQ(d.flush()->key, Key::give_up);
}

TEST(KeyDecoder, APasteIsOneKeyWhateverIsInIt) {
  std::string paste;
  for (int i = 0; i < 20000; ++i) paste += i % 100 == 99 ? "\r" : "字";
  const std::string all = "\x1b[200~" + paste + "\x03\x1b[D\x1b[201~z";
  KeyDecoder d;
  std::optional<KeyPress> got;
  for (size_t i = 0; i < all.size() && !got; i += 1000) {
    d.add(std::string_view(all).substr(i, 1000));
    got = d.next();
  }
  ASSERT_TRUE(got);
  EXPECT_EQ(got->key, Key::paste);
  EXPECT_EQ(std::count(got->text.begin(), got->text.end(), '\n'), 200);
  EXPECT_TRUE(got->text.ends_with("\x03\x1b[D"));
  EXPECT_EQ(got->text.size(), paste.size() + 4);
  EXPECT_EQ(d.next()->text, "z");
}

TEST(KeyDecoder, BrokenBytesBecomeText) {
  KeyDecoder d;
  d.add("a\xff\xfe\r");
  EXPECT_TRUE(d.next()->text.starts_with("a\xef\xbf\xbd"));
}

}  // namespace
}  // namespace nibble::test
