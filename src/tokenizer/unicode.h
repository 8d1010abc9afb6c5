// SPDX-License-Identifier: MIT
// The Unicode knowledge of the tokenizer: character classes (frozen at Unicode 16), UTF-8
// validation and lossy repair, NFC.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

enum class CharClass : uint8_t { other = 0, letter = 1, number = 2, space = 3 };

// Two-stage lookup by code point; about 40 KB, blocks shared, built once.
class UnicodeTable {
 public:
  static const UnicodeTable& instance();
  CharClass char_class(char32_t c) const { return CharClass(entry(c) & 3); }
  // True when the character can neither change nor join with what stands before it under NFC.
  bool nfc_boundary(char32_t c) const { return (entry(c) & 4) == 0; }

 private:
  UnicodeTable();
  static constexpr uint32_t kBlockBits = 7;
  uint8_t entry(char32_t c) const {
    return blocks_[(size_t(index_[c >> kBlockBits]) << kBlockBits) |
                   (c & ((1u << kBlockBits) - 1))];
  }
  std::array<uint16_t, (0x110000 >> kBlockBits)> index_{};
  std::vector<uint8_t> blocks_;
};

struct CodePoint {
  char32_t value;
  uint32_t length;  // in bytes
};

// Reads one character of text that is known to be valid UTF-8.
inline CodePoint decode_valid(const char* p) {
  const auto b = [p](int i) { return char32_t(uint8_t(p[i])); };
  if (b(0) < 0x80) return {b(0), 1};
  if (b(0) < 0xe0) return {(b(0) & 0x1f) << 6 | (b(1) & 0x3f), 2};
  if (b(0) < 0xf0) return {(b(0) & 0x0f) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f), 3};
  return {(b(0) & 7) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f), 4};
}
void append_utf8(std::string& out, char32_t c);

// Bytes from the start of `text` that are valid UTF-8; text.size() when all are.
size_t valid_utf8_prefix(std::string_view text);
// The bytes at the start of `rest` that do not begin a valid character: the "maximal subpart" that
// one U+FFFD stands for. `incomplete` is set when they may still become one with more input.
struct InvalidPart {
  size_t length;
  bool incomplete;
};
InvalidPart invalid_part(std::string_view rest);
// Each maximal invalid part becomes one U+FFFD, as Rust's from_utf8_lossy does it.
std::string repair_utf8(std::string_view text);

// NFC of valid UTF-8. Returns `text` itself when it is in that form already; else fills `storage`
// and returns a view of it. Only the runs that can change go through utf8proc.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace nibble
