// SPDX-License-Identifier: MIT
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "core/error.h"

namespace nibble {
namespace {

struct CodePointRange {
  char32_t first, last;
};
#include "tokenizer/unicode_classes.inc"

// White_Space: stable since Unicode 6.3, so it is short enough to stand here.
constexpr CodePointRange kSpaces[] = {
    {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
};

bool is_continuation(char c) { return (uint8_t(c) & 0xc0) == 0x80; }

// Length of the valid character at the start of `s`, 0 when there is none.
size_t valid_char(std::string_view s) {
  const uint8_t a = uint8_t(s[0]);
  if (a < 0x80) return 1;
  const size_t length = a < 0xc2 ? 0 : a < 0xe0 ? 2 : a < 0xf0 ? 3 : a < 0xf5 ? 4 : 0;
  if (length == 0 || s.size() < length) return 0;
  const uint8_t b = uint8_t(s[1]);
  if (!is_continuation(s[1]) || (a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f) ||
      (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f)) {
    return 0;
  }
  if (length > 2 && !is_continuation(s[2])) return 0;
  if (length > 3 && !is_continuation(s[3])) return 0;
  return length;
}

// Skips bytes below 0x80 eight at a time.
size_t skip_ascii(std::string_view s, size_t i) {
  for (uint64_t word; i + 8 <= s.size(); i += 8) {
    std::memcpy(&word, s.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < s.size() && uint8_t(s[i]) < 0x80) ++i;
  return i;
}

// utf8proc orders combining marks by insertion, which is quadratic in the length of a run of
// marks. A hostile long run is therefore decomposed and ordered here first.
constexpr size_t kLongRun = 512;  // bytes

std::string ordered_decomposition(std::string_view run) {
  std::vector<utf8proc_int32_t> points;
  std::array<utf8proc_int32_t, 32> parts;  // no character decomposes into more
  for (size_t i = 0; i < run.size();) {
    const CodePoint c = decode_valid(run.data() + i);
    int unused = 0;
    const auto n = utf8proc_decompose_char(
        utf8proc_int32_t(c.value), parts.data(), utf8proc_ssize_t(parts.size()),
        utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &unused);
    if (n < 0 || size_t(n) > parts.size())
      throw_internal("cannot decompose U+{:04X}", uint32_t(c.value));
    points.insert(points.end(), parts.begin(), parts.begin() + n);
    i += c.length;
  }
  const auto ccc = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto at = points.begin(); at != points.end();) {
    const auto is_starter = [&ccc](utf8proc_int32_t c) { return ccc(c) == 0; };
    const auto first = std::find_if_not(at, points.end(), is_starter);
    const auto last = std::find_if(first, points.end(), is_starter);
    std::stable_sort(first, last, [&ccc](auto a, auto b) { return ccc(a) < ccc(b); });
    at = last;
  }
  std::string out;
  for (const utf8proc_int32_t c : points) append_utf8(out, char32_t(c));
  return out;
}

void append_nfc(std::string& out, std::string_view run) {
  std::string ordered;
  if (run.size() > kLongRun) {
    ordered = ordered_decomposition(run);
    run = ordered;
  }
  utf8proc_uint8_t* raw = nullptr;
  const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(run.data()),
                              utf8proc_ssize_t(run.size()), &raw,
                              utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  if (n < 0) throw_internal("NFC of {} bytes failed: {}", run.size(), utf8proc_errmsg(n));
  out.append(reinterpret_cast<const char*>(raw), size_t(n));
}

}  // namespace

UnicodeTable::UnicodeTable() {
  std::vector<uint8_t> flat(0x110000);
  const auto mark = [&flat](const auto& ranges, uint8_t bits) {
    for (const CodePointRange& r : ranges) {
      for (char32_t c = r.first; c <= r.last; ++c) flat[c] = uint8_t(flat[c] | bits);
    }
  };
  mark(kLetters, uint8_t(CharClass::letter));
  mark(kNumbers, uint8_t(CharClass::number));
  mark(kSpaces, uint8_t(CharClass::space));
  mark(kNfcUnsafe, 4);
  constexpr size_t kBlock = size_t(1) << kBlockBits;
  std::map<std::string_view, uint16_t> seen;
  for (size_t i = 0; i < index_.size(); ++i) {
    const std::string_view block(reinterpret_cast<const char*>(flat.data()) + i * kBlock, kBlock);
    const auto [at, fresh] = seen.emplace(block, uint16_t(seen.size()));
    if (fresh) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_[i] = at->second;
  }
}

const UnicodeTable& UnicodeTable::instance() {
  static const UnicodeTable table;
  return table;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += char(c);
    return;
  }
  if (c < 0x800) {
    out += char(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      out += char(0xe0 | c >> 12);
    } else {
      out += char(0xf0 | c >> 18);
      out += char(0x80 | (c >> 12 & 0x3f));
    }
    out += char(0x80 | (c >> 6 & 0x3f));
  }
  out += char(0x80 | (c & 0x3f));
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while ((i = skip_ascii(text, i)) < text.size()) {
    while (i < text.size() && uint8_t(text[i]) >= 0x80) {
      const size_t n = valid_char(text.substr(i));
      if (n == 0) return i;
      i += n;
    }
  }
  return i;
}

InvalidPart invalid_part(std::string_view rest) {
  // Grow the part as long as some continuation could still make it a character.
  const uint8_t a = uint8_t(rest[0]);
  if (a < 0xc2 || a > 0xf4) return {1, false};
  const size_t length = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
  size_t n = 1;
  while (n < length && n < rest.size()) {
    const uint8_t b = uint8_t(rest[n]);
    uint8_t low = 0x80, high = 0xbf;
    if (n == 1) {
      if (a == 0xe0) low = 0xa0;
      if (a == 0xf0) low = 0x90;
      if (a == 0xed) high = 0x9f;
      if (a == 0xf4) high = 0x8f;
    }
    if (b < low || b > high) return {n, false};
    ++n;
  }
  return {n, n == rest.size()};
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const size_t good = valid_utf8_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return out;
    append_utf8(out, 0xfffd);
    text.remove_prefix(invalid_part(text).length);
  }
}

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  const UnicodeTable& table = UnicodeTable::instance();
  bool changed = false;
  size_t copied = 0;         // text[0, copied) is in storage, once anything has changed
  size_t last_boundary = 0;  // start of the last character that begins a new run
  size_t i = 0;
  while (i < text.size()) {
    if (uint8_t(text[i]) < 0x80) {
      const size_t end = skip_ascii(text, i);
      last_boundary = end - 1;
      i = end;
      continue;
    }
    const CodePoint c = decode_valid(text.data() + i);
    if (table.nfc_boundary(c.value)) {
      last_boundary = i;
      i += c.length;
      continue;
    }
    size_t end = i + c.length;
    while (end < text.size()) {
      const CodePoint d = decode_valid(text.data() + end);
      if (table.nfc_boundary(d.value)) break;
      end += d.length;
    }
    if (!changed) {
      storage.clear();
      storage.reserve(text.size() + text.size() / 8);
      changed = true;
    }
    storage.append(text.substr(copied, last_boundary - copied));
    append_nfc(storage, text.substr(last_boundary, end - last_boundary));
    copied = i = end;
    last_boundary = end;
  }
  if (!changed) return text;
  storage.append(text.substr(copied));
  return storage;
}

}  // namespace nibble
