// SPDX-License-Identifier: MIT
// What a loaded tokenizer.json consists of, and the reader that makes it. Internal to this layer.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/vocabulary.h"

namespace nibble {

enum class Normalizer : uint8_t { none, nfc };

struct TokenizerData {
  enum Flag : uint8_t { added = 1, special = 2 };

  Vocabulary vocabulary;
  std::vector<uint8_t> flags;  // by id
  std::optional<Bpe> bpe;      // always set once loaded
  Normalizer normalizer = Normalizer::none;
  bool single_digits = false;          // each digit is a piece, before anything else is cut
  std::optional<RegexSplitter> regex;  // absent: Qwen's pattern
  AddedTokenFinder added_raw, added_normalized;
  AddedTokenFinder added_words;  // of added_raw, those that are not special
  std::optional<int32_t> im_start, im_end, endoftext;
  uint64_t content_hash = 0;
};

// Bytes of a tokenizer.json: offsets inside the tables are 32 bit.
inline constexpr size_t kMaxTokenizerJson = 256u << 20;
// `name` is the file, for messages.
TokenizerData read_tokenizer_json(std::string_view json, const std::string& name);

}  // namespace nibble
