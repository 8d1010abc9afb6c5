// SPDX-License-Identifier: MIT
// Token strings <-> ids: one arena of bytes, one flat hash table. Byte-level vocabularies spell
// bytes as characters ("Ġ" is a space); here tokens are kept as the bytes they stand for.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// GPT-2's spelling of the 256 bytes as printable characters, all below U+0144.
class ByteAlphabet {
 public:
  static const ByteAlphabet& instance();
  char32_t char_of(uint8_t byte) const { return char_of_[byte]; }
  // Turns a spelled token into its bytes (appended to `out`). False when some character is not of
  // the alphabet: then the token stands for its own UTF-8 bytes, and those are appended.
  bool append_bytes(std::string& out, std::string_view spelled) const;
  std::string spell(std::string_view bytes) const;

 private:
  ByteAlphabet();
  char32_t char_of_[256];
  int16_t byte_of_[0x144];
};

class Vocabulary {
 public:
  enum class Spelling : uint8_t { alphabet, verbatim };  // how the token stood in the file
  struct Added {
    uint32_t entry;
    bool fresh;  // false: the token was there already
  };

  // Room for about so many tokens without growing. All tokens together may take 2 GiB.
  void reserve(size_t n_tokens);
  // Adds by spelled text. The id may be any until seal() has checked them all.
  Added add(std::string_view spelled, uint32_t id);
  void set_id(uint32_t entry, uint32_t id) { ids_[entry] = id; }
  uint32_t id_at(uint32_t entry) const { return ids_[entry]; }
  // Puts the tokens in id order. Returns the first id that is missing or used twice, if any.
  struct IdProblem {
    uint32_t id;
    bool duplicate;
  };
  std::optional<IdProblem> seal();

  uint32_t size() const { return uint32_t(entries_.size()); }
  std::string_view bytes(uint32_t id) const {
    const Entry& e = entries_[id];
    return std::string_view(arena_).substr(e.offset, e.length);
  }
  Spelling spelling(uint32_t id) const {
    return entries_[id].verbatim ? Spelling::verbatim : Spelling::alphabet;
  }
  std::string spelled(uint32_t id) const;
  size_t longest() const { return longest_; }

  // By the bytes of a token in alphabet spelling: what encoding needs.
  std::optional<uint32_t> find_bytes(std::string_view bytes) const {
    return find(bytes, Spelling::alphabet);
  }
  std::optional<uint32_t> find_spelled(std::string_view spelled) const;

 private:
  struct Entry {  // small, because looking up a token is mostly waiting for memory
    uint32_t offset, length : 31, verbatim : 1;
  };
  struct Slot {
    uint32_t tag, entry_plus_1;  // 0: free
  };
  std::optional<uint32_t> find(std::string_view bytes, Spelling spelling) const;
  void rehash(size_t n_slots);
  bool matches(const Entry& e, std::string_view bytes, Spelling spelling) const {
    return e.verbatim == (spelling == Spelling::verbatim) &&
           std::string_view(arena_).substr(e.offset, e.length) == bytes;
  }

  std::string arena_;
  std::vector<Entry> entries_;  // in file order; after seal() in id order
  std::vector<uint32_t> ids_;   // by entry, until seal()
  std::vector<Slot> slots_;     // a power of two, at most half full
  size_t longest_ = 0;
};

}  // namespace nibble
