// SPDX-License-Identifier: MIT
#include "apps/editor/key_decoder.h"

#include <utility>

#include "core/text/visible.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";

struct KeySequence {
  std::string_view bytes;  // behind the Escape
  Key key;
};
// xterm, the Linux console, rxvt, tmux: with and without application mode and modifiers.
constexpr KeySequence kSequences[] = {
    {"[A", Key::up},
    {"[B", Key::down},
    {"[C", Key::right},
    {"[D", Key::left},
    {"[H", Key::line_begin},
    {"[F", Key::line_end},
    {"OA", Key::up},
    {"OB", Key::down},
    {"OC", Key::right},
    {"OD", Key::left},
    {"OH", Key::line_begin},
    {"OF", Key::line_end},
    {"[1~", Key::line_begin},
    {"[4~", Key::line_end},
    {"[7~", Key::line_begin},
    {"[8~", Key::line_end},
    {"[3~", Key::erase_right},
    {"[1;5C", Key::word_right},
    {"[1;5D", Key::word_left},
    {"[1;3C", Key::word_right},
    {"[1;3D", Key::word_left},
    {"[5C", Key::word_right},
    {"[5D", Key::word_left},
    {"Oc", Key::word_right},
    {"Od", Key::word_left},
    {"[3;5~", Key::kill_word_right},
    {"b", Key::word_left},
    {"f", Key::word_right},
    {"d", Key::kill_word_right},
    {"\x7f", Key::kill_word_left},
    {"\b", Key::kill_word_left},
    {"\r", Key::new_line},
    {"\n", Key::new_line},
    {"<", Key::older},
    {">", Key::newer},
};

Key control_key(char c) {
  switch (c) {
    case 'A' - 64: return Key::line_begin;
    case 'B' - 64: return Key::left;
    case 'C' - 64: return Key::interrupt;
    case 'D' - 64: return Key::end_of_input;
    case 'E' - 64: return Key::line_end;
    case 'F' - 64: return Key::right;
    case 'G' - 64: return Key::give_up;
    case '\b':
    case 0x7f: return Key::backspace;
    case '\t': return Key::tab;
    case '\n':
    case '\r': return Key::enter;
    case 'K' - 64: return Key::kill_to_line_end;
    case 'L' - 64: return Key::clear_screen;
    case 'N' - 64: return Key::newer;
    case 'P' - 64: return Key::older;
    case 'R' - 64: return Key::search;
    case 'T' - 64: return Key::swap;
    case 'U' - 64: return Key::kill_to_line_begin;
    case 'W' - 64: return Key::kill_word_left;
    case 'Y' - 64: return Key::yank;
    case 'Z' - 64: return Key::suspend;
    default: return Key::unknown;
  }
}

bool is_control(char c) { return uint8_t(c) < 0x20 || c == 0x7f; }

// Terminals send \r for a line end; programs that put text on the clipboard may have had \r\n.
std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return repair_utf8(out);
}

}  // namespace

KeyPress KeyDecoder::take(size_t bytes, Key key) {
  bytes_.erase(0, bytes);
  return {key};
}

std::optional<KeyPress> KeyDecoder::next() {
  if (bytes_.empty()) return std::nullopt;
  if (in_paste_) return paste();
  if (bytes_[0] == '\x1b') return escape();
  if (is_control(bytes_[0])) return take(1, control_key(bytes_[0]));
  return typed();
}

std::optional<KeyPress> KeyDecoder::paste() {
  const size_t end = bytes_.find(kPasteEnd, searched_);
  if (end == std::string::npos) {
    searched_ = bytes_.size() < kPasteEnd.size() ? 0 : bytes_.size() - kPasteEnd.size();
    return std::nullopt;
  }
  in_paste_ = false;
  KeyPress key{Key::paste, with_plain_line_ends(std::string_view(bytes_).substr(0, end))};
  bytes_.erase(0, end + kPasteEnd.size());
  return key;
}

std::optional<KeyPress> KeyDecoder::escape() {
  if (bytes_.starts_with(kPasteBegin)) {
    bytes_.erase(0, kPasteBegin.size());
    in_paste_ = true;
    searched_ = 0;
    return next();
  }
  if (bytes_.size() == 1) return std::nullopt;
  const std::string_view behind = std::string_view(bytes_).substr(1);
  size_t length = 1;  // of the sequence behind the Escape
  if (behind[0] == '[') {
    // Parameters, then one letter or ~. (The Linux console's F1 to F5: a second bracket first.)
    if (behind.size() > 1 && behind[1] == '[') ++length;
    while (length < behind.size() && uint8_t(behind[length]) < 0x40) ++length;
    if (length == behind.size()) return std::nullopt;
    ++length;
  } else if (behind[0] == 'O') {
    if (behind.size() == 1) return std::nullopt;
    length = 2;
  } else if (behind[0] == '\x1b') {
    return take(1, Key::give_up);
  } else if (uint8_t(behind[0]) >= 0x80) {  // Alt and a wide character
    while (length < behind.size() && (uint8_t(behind[length]) & 0xc0) == 0x80) ++length;
    if (length == behind.size() && whole_characters(behind) < length) return std::nullopt;
  }
  const std::string_view sequence = behind.substr(0, length);
  for (const KeySequence& s : kSequences) {
    if (s.bytes == sequence) return take(1 + length, s.key);
  }
  if (is_control(behind[0])) return take(1, Key::give_up);  // two keys: Escape, then Ctrl+C
  return take(1 + length, Key::unknown);
}

// A run of text at once: typed ahead, or pasted where a terminal does not mark pastes.
std::optional<KeyPress> KeyDecoder::typed() {
  size_t end = 0;
  while (end < bytes_.size() && !is_control(bytes_[end])) ++end;
  if (end == bytes_.size()) end = whole_characters(bytes_);
  if (end == 0) return std::nullopt;
  KeyPress key{Key::text, repair_utf8(std::string_view(bytes_).substr(0, end))};
  bytes_.erase(0, end);
  return key;
}

std::optional<KeyPress> KeyDecoder::flush() {
  if (bytes_.empty()) return std::nullopt;
  const std::string all = std::exchange(bytes_, {});
  if (std::exchange(in_paste_, false)) return KeyPress{Key::paste, with_plain_line_ends(all)};
  if (all[0] == '\x1b') return KeyPress{all.size() == 1 ? Key::give_up : Key::unknown};
  return KeyPress{Key::text, repair_utf8(all)};
}

}  // namespace nibble
