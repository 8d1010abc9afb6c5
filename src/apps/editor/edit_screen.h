// SPDX-License-Identifier: MIT
// Draws a prompt and the text behind it, in as many rows of a terminal as it needs, and draws it
// anew where something changed. The last column stays free, so that no terminal wraps by itself;
// the cursor is put in its place by writing what stands before it, which is right whatever widths
// the terminal believes in.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apps/editor/text_cells.h"

namespace nibble {

class EditScreen {
 public:
  // `plain`: a terminal that knows no sequences (TERM=dumb): text is added and taken back at its
  // end. `echo`: false where somebody else shows what is typed.
  EditScreen(int fd, bool plain, bool echo) : fd_(fd), plain_(plain), echo_(echo) {}

  void draw(std::string_view prompt, std::string_view text, size_t cursor);
  // All of it, also what did not fit on the screen, and then the beginning of a new row.
  void finish(std::string_view prompt, std::string_view text, std::string_view behind = "");
  // What follows is drawn below whatever is there.
  void begin_anew();
  void clear();                    // the whole screen
  void write(std::string_view s);  // as it is
  // Where the cursor is to be for one row up (-1) or down (1); the text's size + 1: no such row.
  size_t vertical(std::string_view prompt, std::string_view text, size_t cursor, int by);
  bool plain() const { return plain_; }

 private:
  struct Size {
    int columns = 80, lines = 24;
  };
  Size size() const;
  std::string to_top(int columns);
  std::string row_text(std::string_view prompt, std::string_view text, const ScreenRow& row,
                       size_t until) const;
  void draw_plain(std::string_view prompt, std::string_view text);

  int fd_;
  bool plain_, echo_;
  size_t top_ = 0;                  // the first row that is shown
  std::vector<std::string> shown_;  // the rows as drawn last
  size_t cursor_row_ = 0;           // of shown_
  size_t cursor_at_ = 0;            // bytes of that row
  int columns_ = 0;                 // of the terminal, then
  std::string plain_text_;          // as drawn last
  bool begun_ = false;
};

}  // namespace nibble
