// SPDX-License-Identifier: MIT
// Finds added tokens ("<|im_start|>") in text: leftmost first, the longest of those.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = false;     // skipped by decoding without specials
  bool normalized = false;  // matched after normalisation instead of before
  bool lstrip = false;      // takes the white space on its left along
  bool rstrip = false;      // and on its right
};

class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;  // with the white space that lstrip and rstrip take
    uint32_t id;
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);  // contents not empty, all different
  bool empty() const { return tokens_.empty(); }
  // The first match in text[from, to), if any.
  std::optional<Match> find(std::string_view text, size_t from, size_t to) const;

 private:
  const AddedToken* longest_at(std::string_view rest) const;
  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<bool, 256> first_{};   // bytes some token starts with
};

}  // namespace nibble
