// SPDX-License-Identifier: MIT
#include "apps/editor/edit_line.h"

#include <algorithm>
#include <utility>

#include "apps/editor/text_cells.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

// Letters and digits of any script. (Chinese has no spaces: a run of it is one word.)
bool is_of_word(std::string_view text, size_t at) {
  const CharClass c = UnicodeTable::instance().char_class(decode_valid(text.data() + at).value);
  return c == CharClass::letter || c == CharClass::number;
}

}  // namespace

void EditLine::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditLine::insert(std::string_view text) { replace(cursor_, cursor_, text); }

void EditLine::replace(size_t begin, size_t end, std::string_view text) {
  const std::string inserted(text);  // it may be a part of text_
  text_.replace(begin, end - begin, inserted);
  cursor_ = begin + inserted.size();
}

void EditLine::move_to(size_t at) { cursor_ = std::min(at, text_.size()); }

void EditLine::left() { cursor_ = previous_character(text_, cursor_); }
void EditLine::right() { cursor_ = next_character(text_, cursor_); }

size_t EditLine::word_begin() const {
  size_t at = cursor_;
  bool inside = false;
  while (at > 0) {
    const size_t before = previous_character(text_, at);
    const bool word = is_of_word(text_, before);
    if (inside && !word) break;
    inside = inside || word;
    at = before;
  }
  return at;
}

size_t EditLine::word_end() const {
  size_t at = cursor_;
  while (at < text_.size() && !is_of_word(text_, at)) at = next_character(text_, at);
  while (at < text_.size() && is_of_word(text_, at)) at = next_character(text_, at);
  return at;
}

void EditLine::word_left() { cursor_ = word_begin(); }
void EditLine::word_right() { cursor_ = word_end(); }

void EditLine::line_begin() {
  const size_t end = cursor_ == 0 ? std::string::npos : text_.rfind('\n', cursor_ - 1);
  cursor_ = end == std::string::npos ? 0 : end + 1;
}

void EditLine::line_end() { cursor_ = std::min(text_.find('\n', cursor_), text_.size()); }

void EditLine::erase_left() { replace(previous_character(text_, cursor_), cursor_, ""); }
void EditLine::erase_right() { replace(cursor_, next_character(text_, cursor_), ""); }

void EditLine::kill(size_t begin, size_t end) {
  if (begin == end) return;
  killed_ = text_.substr(begin, end - begin);
  replace(begin, end, "");
}

void EditLine::kill_word_left() { kill(word_begin(), cursor_); }
void EditLine::kill_word_right() { kill(cursor_, word_end()); }

void EditLine::kill_to_line_begin() {
  const size_t end = cursor_;
  line_begin();
  kill(cursor_, end);
}

void EditLine::kill_to_line_end() {
  const size_t begin = cursor_;
  line_end();
  // At the end of a line already: the line end itself, so that lines can be joined.
  if (cursor_ == begin) cursor_ = next_character(text_, cursor_);
  kill(begin, cursor_);
}

void EditLine::swap_characters() {
  if (cursor_ == text_.size()) left();
  if (cursor_ == 0) return;
  const size_t begin = previous_character(text_, cursor_), end = next_character(text_, cursor_);
  const std::string swapped =
      text_.substr(cursor_, end - cursor_) + text_.substr(begin, cursor_ - begin);
  replace(begin, end, swapped);
}

}  // namespace nibble
