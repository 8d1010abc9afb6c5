// SPDX-License-Identifier: MIT
// Ids in, text out as soon as it is whole: a character whose bytes lie in several tokens appears
// with the last of them. The texts joined equal Tokenizer::decode of all ids.
#pragma once
#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace nibble {

class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, DecodeSpecial special = DecodeSpecial::keep)
      : tokenizer_(std::move(tokenizer)), special_(special) {}

  // The text that has become complete with this token; may be empty.
  std::string push(int32_t id);
  void push(int32_t id, std::string& out);  // appends
  // The end: an unfinished character becomes one U+FFFD. The decoder is then as new.
  std::string flush();
  // True while part of a character is held back.
  bool pending() const { return !pending_.empty(); }

 private:
  Tokenizer tokenizer_;
  DecodeSpecial special_;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace nibble
