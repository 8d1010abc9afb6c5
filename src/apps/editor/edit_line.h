// SPDX-License-Identifier: MIT
// The text that is being typed, and a cursor in it that stands between whole characters.
#pragma once
#include <string>
#include <string_view>

namespace nibble {

class EditLine {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }
  bool empty() const { return text_.empty(); }
  std::string_view before_cursor() const { return std::string_view(text_).substr(0, cursor_); }

  void set(std::string text);  // the cursor at its end
  void insert(std::string_view text);
  void replace(size_t begin, size_t end, std::string_view text);  // the cursor behind it
  void move_to(size_t at);

  void left();
  void right();
  void word_left();
  void word_right();
  void line_begin();  // of the line of the text the cursor is in
  void line_end();

  void erase_left();
  void erase_right();
  // These keep what they took, for yank(): one place, the last taken.
  void kill_word_left();
  void kill_word_right();
  void kill_to_line_begin();
  void kill_to_line_end();
  void yank() { insert(killed_); }
  void swap_characters();  // the one before the cursor with the one under it

 private:
  size_t word_begin() const;
  size_t word_end() const;
  void kill(size_t begin, size_t end);

  std::string text_, killed_;
  size_t cursor_ = 0;
};

}  // namespace nibble
