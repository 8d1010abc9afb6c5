// SPDX-License-Identifier: MIT
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

#include "core/hash.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Any two numbers that differ.
constexpr uint64_t kAlphabetSeed = 0x9e3779b97f4a7c15u, kVerbatimSeed = 0xd6e8feb86659fd93u;

// The two spellings are different keys even where their bytes are equal.
uint64_t key_hash(std::string_view bytes, Vocabulary::Spelling spelling) {
  return hash_bytes(bytes,
                    spelling == Vocabulary::Spelling::alphabet ? kAlphabetSeed : kVerbatimSeed);
}

}  // namespace

ByteAlphabet::ByteAlphabet() {
  std::fill(std::begin(byte_of_), std::end(byte_of_), int16_t(-1));
  char32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    char_of_[b] = printable ? b : next++;
    byte_of_[char_of_[b]] = int16_t(b);
  }
}

const ByteAlphabet& ByteAlphabet::instance() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

bool ByteAlphabet::append_bytes(std::string& out, std::string_view spelled) const {
  const size_t start = out.size();
  for (size_t i = 0; i < spelled.size();) {
    const CodePoint c = decode_valid(spelled.data() + i);
    if (c.value >= std::size(byte_of_) || byte_of_[c.value] < 0) {
      out.resize(start);
      out.append(spelled);
      return false;
    }
    out += char(byte_of_[c.value]);
    i += c.length;
  }
  return true;
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string out;
  for (const char b : bytes) append_utf8(out, char_of_[uint8_t(b)]);
  return out;
}

Vocabulary::Added Vocabulary::add(std::string_view spelled, uint32_t id) {
  if (entries_.size() * 2 >= slots_.size()) rehash(std::max<size_t>(1024, slots_.size() * 2));
  const size_t offset = arena_.size();
  const Spelling spelling = ByteAlphabet::instance().append_bytes(arena_, spelled)
                                ? Spelling::alphabet
                                : Spelling::verbatim;
  const std::string_view bytes = std::string_view(arena_).substr(offset);
  const uint64_t h = key_hash(bytes, spelling);
  const size_t mask = slots_.size() - 1;
  size_t at = h & mask;
  for (; slots_[at].entry_plus_1; at = (at + 1) & mask) {
    if (slots_[at].tag != uint32_t(h >> 32)) continue;
    const Entry& e = entries_[slots_[at].entry_plus_1 - 1];
    if (matches(e, bytes, spelling)) {
      arena_.resize(offset);
      return {slots_[at].entry_plus_1 - 1, false};
    }
  }
  longest_ = std::max(longest_, bytes.size());
  slots_[at] = {uint32_t(h >> 32), uint32_t(entries_.size() + 1)};
  entries_.push_back(
      {uint32_t(offset), uint32_t(bytes.size()) & INT32_MAX, spelling == Spelling::verbatim});
  ids_.push_back(id);
  return {uint32_t(entries_.size() - 1), true};
}

void Vocabulary::reserve(size_t n_tokens) {
  entries_.reserve(n_tokens);
  ids_.reserve(n_tokens);
  arena_.reserve(n_tokens * 8);
  rehash(std::bit_ceil(std::max<size_t>(1024, n_tokens * 2)));
}

void Vocabulary::rehash(size_t n_slots) {
  slots_.assign(n_slots, Slot{0, 0});
  const size_t mask = slots_.size() - 1;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const uint64_t h = key_hash(bytes(i), spelling(i));
    size_t at = h & mask;
    while (slots_[at].entry_plus_1) at = (at + 1) & mask;
    slots_[at] = {uint32_t(h >> 32), i + 1};
  }
}

std::optional<Vocabulary::IdProblem> Vocabulary::seal() {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> entry_of(entries_.size(), kNone);
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const uint32_t id = ids_[i];
    if (id >= entry_of.size()) continue;  // then some smaller id is missing
    if (entry_of[id] != kNone) return IdProblem{id, true};
    entry_of[id] = i;
  }
  const auto hole = std::find(entry_of.begin(), entry_of.end(), kNone);
  if (hole != entry_of.end()) return IdProblem{uint32_t(hole - entry_of.begin()), false};
  if (!std::is_sorted(ids_.begin(), ids_.end())) {
    for (Slot& s : slots_) {
      if (s.entry_plus_1) s.entry_plus_1 = ids_[s.entry_plus_1 - 1] + 1;
    }
    std::vector<Entry> sorted(entries_.size());
    for (uint32_t i = 0; i < entries_.size(); ++i) sorted[ids_[i]] = entries_[i];
    entries_ = std::move(sorted);
  }
  ids_ = {};
  return std::nullopt;
}

std::string Vocabulary::spelled(uint32_t id) const {
  return spelling(id) == Spelling::alphabet ? ByteAlphabet::instance().spell(bytes(id))
                                            : std::string(bytes(id));
}

std::optional<uint32_t> Vocabulary::find(std::string_view bytes, Spelling spelling) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t h = key_hash(bytes, spelling);
  const size_t mask = slots_.size() - 1;
  for (size_t at = h & mask; slots_[at].entry_plus_1; at = (at + 1) & mask) {
    if (slots_[at].tag != uint32_t(h >> 32)) continue;
    const Entry& e = entries_[slots_[at].entry_plus_1 - 1];
    if (matches(e, bytes, spelling)) {
      return slots_[at].entry_plus_1 - 1;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> Vocabulary::find_spelled(std::string_view spelled) const {
  if (valid_utf8_prefix(spelled) != spelled.size()) return std::nullopt;
  std::string bytes;
  const bool mapped = ByteAlphabet::instance().append_bytes(bytes, spelled);
  return find(bytes, mapped ? Spelling::alphabet : Spelling::verbatim);
}

}  // namespace nibble
