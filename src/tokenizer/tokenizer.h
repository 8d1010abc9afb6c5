// SPDX-License-Identifier: MIT
// Text <-> token ids with a Hugging Face tokenizer.json (byte-level BPE). What such a file may ask
// for and is not listed in tokenizer_json.cpp is refused when it is loaded, never ignored.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct TokenizerData;

// What happens to the strings of added tokens ("<|im_end|>", "<think>") inside a text.
enum class SpecialTokens {
  parse,  // they become their ids, as Hugging Face does it
  plain,  // they are ordinary text: input from outside cannot make control tokens
  words,  // those the file does not call special ("<think>") become their ids, the others are text
};
// Whether decoding writes the tokens the file calls special ("<|im_end|>", but not "<think>").
enum class DecodeSpecial { keep, skip };

// A stretch of a longer text with its own rule; see encode(span).
struct TextPiece {
  std::string_view text;
  SpecialTokens special = SpecialTokens::parse;
};

// Cheap to copy (shared, immutable); every const function may be called from many threads at once.
class Tokenizer {
 public:
  // Throws FormatError, which names the file and, where known, section and byte offset.
  static Tokenizer load(const std::filesystem::path& path);
  static Tokenizer parse(std::string_view json, const std::string& name);

  // No token is ever added at the ends. Bytes that are not UTF-8 are read as U+FFFD, one per
  // maximal invalid part. Throws UsageError for a text over 1 GiB.
  std::vector<int32_t> encode(std::string_view text,
                              SpecialTokens how = SpecialTokens::parse) const;
  // One text in several pieces: the result is that of the joined text, except that added tokens are
  // found only where they lie wholly inside pieces that say `parse`. (If the file has added tokens
  // with "normalized": true, runs of pieces with different rules are encoded apart.)
  std::vector<int32_t> encode(std::span<const TextPiece> pieces) const;

  // Ids outside the vocabulary (a model may have more rows than the tokenizer has tokens) are
  // left out. Bytes that are not UTF-8 come out as U+FFFD, one per maximal invalid part.
  std::string decode(std::span<const int32_t> ids,
                     DecodeSpecial special = DecodeSpecial::keep) const;

  // Number of tokens with the added ones. Ids are 0 .. vocab_size() - 1, without holes.
  int32_t vocab_size() const;
  // The bytes the token stands for; empty for an id outside the vocabulary. Lives as long as any
  // copy of the tokenizer.
  std::string_view token_bytes(int32_t id) const;
  // The token as the file spells it ("Ġhello"), and the way back.
  std::string token_text(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view token_text) const;
  bool is_added(int32_t id) const;
  bool is_special(int32_t id) const;

  // Ids of the well-known added tokens, where the file has them.
  std::optional<int32_t> im_start() const;
  std::optional<int32_t> im_end() const;
  std::optional<int32_t> endoftext() const;

  // Of the content, not of the file's bytes: equal for two files that encode and decode alike by
  // the same tables, whatever their layout. Stable across versions and machines.
  uint64_t content_hash() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerData> data) : data_(std::move(data)) {}
  std::shared_ptr<const TokenizerData> data_;
};

}  // namespace nibble
