// SPDX-License-Identifier: MIT
// What a terminal sends when keys are pressed, as keys.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace nibble {

enum class Key {
  text,   // KeyPress::text was typed
  paste,  // KeyPress::text was pasted: line ends in it are \n
  enter,
  new_line,  // Alt+Enter: a line end in the text
  tab,
  backspace,
  erase_right,
  left,
  right,
  word_left,
  word_right,
  up,
  down,
  line_begin,
  line_end,
  older,  // entries of the history, whatever is in the line
  newer,
  search,
  kill_word_left,
  kill_word_right,
  kill_to_line_begin,
  kill_to_line_end,
  yank,
  swap,
  clear_screen,
  interrupt,     // Ctrl+C
  end_of_input,  // Ctrl+D
  suspend,       // Ctrl+Z
  give_up,       // Ctrl+G, Escape
  unknown
};

struct KeyPress {
  Key key = Key::unknown;
  std::string text = {};
};

class KeyDecoder {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next key; nothing: more bytes are needed.
  std::optional<KeyPress> next();
  // Whether an Escape is there that nothing was made of: it becomes a key by itself when nothing
  // follows soon. (The rest of a character or of a paste will come, however slow the line is.)
  bool has_open_escape() const { return !in_paste_ && bytes_.starts_with('\x1b'); }
  // Nothing followed: what there is, is all there is.
  std::optional<KeyPress> flush();

 private:
  std::optional<KeyPress> escape();
  std::optional<KeyPress> paste();
  std::optional<KeyPress> typed();
  KeyPress take(size_t bytes, Key key);

  std::string bytes_;
  bool in_paste_ = false;
  size_t searched_ = 0;  // of a paste's bytes: its end is not there
};

}  // namespace nibble
