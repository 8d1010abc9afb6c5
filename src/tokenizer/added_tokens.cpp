// SPDX-License-Identifier: MIT
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace nibble {
namespace {

bool is_space(const CodePoint& c) {
  return UnicodeTable::instance().char_class(c.value) == CharClass::space;
}

size_t skip_spaces_left(std::string_view text, size_t from, size_t begin) {
  while (begin > from) {
    size_t start = begin - 1;
    while (start > from && (uint8_t(text[start]) & 0xc0) == 0x80) --start;
    if (!is_space(decode_valid(text.data() + start))) break;
    begin = start;
  }
  return begin;
}

size_t skip_spaces_right(std::string_view text, size_t end, size_t to) {
  while (end < to) {
    const CodePoint c = decode_valid(text.data() + end);
    if (!is_space(c)) break;
    end += c.length;
  }
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& t : tokens_) first_[uint8_t(t.content[0])] = true;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view rest) const {
  // Narrow the sorted range by one byte at a time; a token that ends at this depth stands first.
  auto low = tokens_.begin(), high = tokens_.end();
  const AddedToken* best = nullptr;
  for (size_t depth = 0; depth < rest.size(); ++depth) {
    const uint8_t want = uint8_t(rest[depth]);
    const auto byte = [depth](const AddedToken& t) {
      return depth < t.content.size() ? int(uint8_t(t.content[depth])) : -1;
    };
    low = std::partition_point(low, high, [&](const AddedToken& t) { return byte(t) < want; });
    high = std::partition_point(low, high, [&](const AddedToken& t) { return byte(t) <= want; });
    if (low == high) break;
    if (low->content.size() == depth + 1) best = &*low;
  }
  return best;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, size_t from,
                                                              size_t to) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t i = from; i < to; ++i) {
    if (!first_[uint8_t(text[i])]) continue;
    const AddedToken* t = longest_at(text.substr(i, to - i));
    if (!t) continue;
    Match m{i, i + t->content.size(), t->id};
    if (t->lstrip) m.begin = skip_spaces_left(text, from, m.begin);
    if (t->rstrip) m.end = skip_spaces_right(text, m.end, to);
    return m;
  }
  return std::nullopt;
}

}  // namespace nibble
