// SPDX-License-Identifier: MIT
// What may be typed in a chat beside what is said: commands that begin with a slash.
#pragma once
#include <string>
#include <string_view>

#include "apps/editor/line_editor.h"

namespace nibble {

inline constexpr std::string_view kForceWord = "--force ";  // of /save

enum class Slash { help, reset, system, temp, save, load, regen, undo, stats, exit };

struct Typed {
  enum class Kind {
    nothing,  // blank
    said,     // `text` is for the model
    command,  // `command` with `text` behind it
    unknown   // `text` begins like a command and is none
  } kind = Kind::nothing;
  Slash command = Slash::help;
  std::string text = {};
};

// At a terminal every line that begins with one slash is a command; two slashes are text with one.
// In a pipe, where scripts of every age speak, a slash with words behind it that is no command is
// text. Text of several lines is never an unknown command. """ around it goes.
Typed read_typed(std::string_view text, bool terminal);
// Without """ around it, where it has that.
std::string block_or_text(std::string_view text);
// A block that was begun with """ and is not ended.
bool is_unfinished(std::string_view text);

std::string slash_help();
std::string unknown_answer(std::string_view text);  // with the nearest command
// Commands at the beginning, file names behind /save and /load.
Completion complete_typed(std::string_view before_cursor);

}  // namespace nibble
