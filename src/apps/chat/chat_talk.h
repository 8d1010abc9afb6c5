// SPDX-License-Identifier: MIT
// The typed part of a chat: turns and commands, from a terminal or a pipe.
#pragma once
#include "apps/chat/live_chat.h"
#include "apps/editor/line_editor.h"

namespace nibble {

// Until the end of input, /exit, or two Ctrl+C. `editor` null: one line is one turn.
void talk(LiveChat& chat, LineEditor* editor, Io& io);

}  // namespace nibble
