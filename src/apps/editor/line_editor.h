// SPDX-License-Identifier: MIT
// Text typed at a terminal, edited before it is handed over: the keys people know from shells, wide
// characters, pastes that stay whole, lines of several lines, history, completion. A terminal's own
// line editing (canonical mode) cuts lines at 4,095 bytes and knows nothing of wide characters.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/editor/edit_line.h"
#include "apps/editor/edit_screen.h"
#include "apps/editor/input_history.h"
#include "apps/editor/key_decoder.h"
#include "guard/terminal_state.h"

namespace nibble {

struct Completion {
  size_t begin = 0;                // the words replace the text from here to the cursor
  std::vector<std::string> words;  // whole ones, with the space or slash behind them
};

struct EditorHooks {
  // Whether Enter is to begin another line of the text instead of handing it over.
  std::function<bool(std::string_view text)> unfinished = {};
  // For the text before the cursor.
  std::function<Completion(std::string_view text)> complete = {};
};

class LineEditor {
 public:
  // Null where standard input is no terminal, or nothing can be drawn on. From here on the terminal
  // keeps what is typed ahead instead of showing it, until the editor goes.
  static std::unique_ptr<LineEditor> open();

  void use_history(std::filesystem::path file) { history_ = InputHistory(std::move(file)); }
  void use_hooks(EditorHooks hooks) { hooks_ = std::move(hooks); }

  enum class Got {
    text,
    interrupt,  // Ctrl+C where nothing was typed; where something was, it clears the line
    end         // Ctrl+D where nothing was typed, or the terminal is gone
  };
  Got read(std::string_view prompt, std::string& text);
  // Whether Ctrl+C and Ctrl+Z are signals. They are keys from read() on, until they are let.
  void let_signals(bool yes);
  // Only what is worth to be found again: who reads decides.
  void remember(const std::string& text) { history_.add(text); }

 private:
  LineEditor(int screen, bool plain);
  bool wait_for_key(KeyPress& key);  // false: there will be none
  bool edit(const KeyPress& key);    // false: not a key of these
  void up_or_down(int by);
  void recall(int by);
  void complete();
  void search();
  void suspend();
  // Drawn once there is nothing more to read: fast typing and pastes without marks cost no more.
  struct View {
    std::string prompt, text;
    size_t cursor = 0;
  };
  void show(View view);
  void show_line() { show({prompt_, line_.text(), line_.cursor()}); }
  void draw();

  TerminalState state_;
  EditScreen screen_;
  KeyDecoder keys_;
  EditLine line_;
  std::string prompt_;
  InputHistory history_;
  EditorHooks hooks_;
  size_t recalled_ = 0;  // of the history; its size: what is typed now
  std::string draft_;    // that, while an entry is shown
  bool tab_before_ = false;
  View view_;
  bool drawn_ = true;
};

}  // namespace nibble
