// SPDX-License-Identifier: MIT
#include "apps/editor/line_editor.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "core/text/visible.h"
#include "guard/signal_watch.h"

namespace nibble {
namespace {

constexpr int kKeyboard = STDIN_FILENO;
constexpr int kEscapeMs = 50;  // the bytes of a key come together; a lone Escape has none behind it

int drawing_descriptor() {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (::isatty(fd) != 0) return fd;
  }
  return ::open("/dev/tty", O_WRONLY | O_CLOEXEC | O_NOCTTY);  // open as long as the program runs
}

bool knows_no_sequences() {
  const char* const term = std::getenv("TERM");
  return term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
}

bool is_echoing(int fd) {
  termios t{};
  return ::tcgetattr(fd, &t) == 0 && (t.c_lflag & ECHO) != 0;
}

std::string common_prefix(const std::vector<std::string>& words) {
  std::string common = words[0];
  for (const std::string& w : words) {
    const auto [a, b] = std::mismatch(common.begin(), common.end(), w.begin(), w.end());
    common.erase(a, common.end());
  }
  return common.substr(0, whole_characters(common));
}

}  // namespace

std::unique_ptr<LineEditor> LineEditor::open() {
  if (::isatty(kKeyboard) == 0) return nullptr;
  const int screen = drawing_descriptor();
  if (screen < 0) return nullptr;
  return std::unique_ptr<LineEditor>(new LineEditor(screen, knows_no_sequences()));
}

LineEditor::LineEditor(int screen, bool plain)
    : state_(kKeyboard, screen), screen_(screen, plain, is_echoing(kKeyboard)) {
  let_signals(true);
}

// Never canonical and never echoing, so that what is typed or pasted while a model is loaded or
// answers waits whole for the next prompt. With `signals`, Ctrl+C is the signal that ends a reply
// or the program.
void LineEditor::let_signals(bool signals) {
  termios t = state_.before();
  t.c_lflag &= ~tcflag_t(ICANON | ECHO | IEXTEN | ISIG);
  if (signals) t.c_lflag |= ISIG | NOFLSH;  // what is typed ahead stays
  t.c_iflag &= ~tcflag_t(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  t.c_cc[VMIN] = 1;
  t.c_cc[VTIME] = 0;
  state_.set(t);
  if (!screen_.plain()) state_.mark_pastes();
}

void LineEditor::show(View view) {
  view_ = std::move(view);
  drawn_ = false;
}

void LineEditor::draw() {
  screen_.draw(view_.prompt, view_.text, view_.cursor);
  drawn_ = true;
}

bool LineEditor::wait_for_key(KeyPress& key) {
  SignalWatch changes({SIGWINCH, SIGCONT});
  for (;;) {
    if (auto k = keys_.next()) {
      key = std::move(*k);
      return true;
    }
    pollfd wait[] = {{kKeyboard, POLLIN, 0}, {changes.fd(), POLLIN, 0}};
    if (!drawn_ && ::poll(wait, 1, 0) == 0) draw();
    const int ready = ::poll(wait, 2, keys_.has_open_escape() ? kEscapeMs : -1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0) {
      if (auto k = keys_.flush()) {
        key = std::move(*k);
        return true;
      }
    }
    while (const auto event = changes.next()) {
      if (event->signal == SIGCONT) {
        let_signals(false);
        screen_.begin_anew();
      }
      drawn_ = false;
    }
    if (ready > 0 && wait[0].revents != 0) {
      char bytes[4096];
      const ssize_t n = ::read(kKeyboard, bytes, sizeof bytes);
      if (n > 0) {
        keys_.add({bytes, size_t(n)});
      } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        return false;
      }
    }
  }
}

LineEditor::Got LineEditor::read(std::string_view prompt, std::string& text) {
  let_signals(false);
  prompt_ = prompt;
  line_.set("");
  recalled_ = history_.entries().size();
  screen_.begin_anew();
  show_line();
  for (KeyPress key; wait_for_key(key);) {
    const bool tab = key.key == Key::tab && !screen_.plain();
    if (key.key == Key::enter && !(hooks_.unfinished && hooks_.unfinished(line_.text()))) {
      screen_.finish(prompt_, line_.text());
      text = line_.text();
      return Got::text;
    } else if (key.key == Key::enter) {
      line_.insert("\n");
    } else if (key.key == Key::interrupt) {
      const bool empty = line_.empty();
      screen_.finish(prompt_, line_.text(), "^C");
      if (empty) return Got::interrupt;
      line_.set("");
      recalled_ = history_.entries().size();
    } else if (key.key == Key::end_of_input && line_.empty()) {
      screen_.finish(prompt_, "");
      return Got::end;
    } else if (tab) {
      complete();
    } else if (key.key == Key::search && !screen_.plain()) {
      search();
    } else if (key.key == Key::suspend) {
      suspend();
    } else {
      edit(key);
    }
    tab_before_ = tab;
    show_line();
  }
  screen_.finish(prompt_, line_.text());
  return Got::end;
}

bool LineEditor::edit(const KeyPress& key) {
  switch (key.key) {
    case Key::text:
    case Key::paste: line_.insert(key.text); return true;
    case Key::new_line: line_.insert("\n"); return true;
    case Key::tab: line_.insert("\t"); return true;
    case Key::backspace: line_.erase_left(); return true;
    case Key::kill_word_left: line_.kill_word_left(); return true;
    case Key::kill_to_line_begin: line_.kill_to_line_begin(); return true;
    case Key::yank: line_.yank(); return true;
    case Key::older: recall(-1); return true;
    case Key::newer: recall(1); return true;
    case Key::up: up_or_down(-1); return true;
    case Key::down: up_or_down(1); return true;
    default: break;
  }
  if (screen_.plain()) return false;  // there the cursor is always at the end
  switch (key.key) {
    case Key::erase_right:
    case Key::end_of_input: line_.erase_right(); return true;
    case Key::left: line_.left(); return true;
    case Key::right: line_.right(); return true;
    case Key::word_left: line_.word_left(); return true;
    case Key::word_right: line_.word_right(); return true;
    case Key::line_begin: line_.line_begin(); return true;
    case Key::line_end: line_.line_end(); return true;
    case Key::kill_word_right: line_.kill_word_right(); return true;
    case Key::kill_to_line_end: line_.kill_to_line_end(); return true;
    case Key::swap: line_.swap_characters(); return true;
    case Key::clear_screen: screen_.clear(); return true;
    default: return false;
  }
}

void LineEditor::up_or_down(int by) {
  const size_t to = screen_.plain() ? line_.text().size() + 1
                                    : screen_.vertical(prompt_, line_.text(), line_.cursor(), by);
  if (to <= line_.text().size()) {
    line_.move_to(to);
  } else {
    recall(by);
  }
}

void LineEditor::recall(int by) {
  const auto& entries = history_.entries();
  if ((by < 0 && recalled_ == 0) || (by > 0 && recalled_ >= entries.size())) return;
  if (recalled_ == entries.size()) draft_ = line_.text();
  recalled_ = by < 0 ? recalled_ - 1 : recalled_ + 1;
  line_.set(recalled_ == entries.size() ? draft_ : entries[recalled_]);
}

void LineEditor::complete() {
  if (!hooks_.complete) return;
  const Completion found = hooks_.complete(line_.before_cursor());
  if (found.words.empty()) return;
  const std::string common = common_prefix(found.words);
  const size_t had = line_.cursor() - found.begin;
  if (found.words.size() == 1 || common.size() > had) {
    line_.replace(found.begin, line_.cursor(), common);
  } else if (tab_before_) {  // nothing more to add: show what there is
    std::string list;
    for (const std::string& w : found.words) list += visible_line(w) + "  ";
    screen_.finish(prompt_, line_.text());
    screen_.write(list + "\r\n");
  }
}

// Ctrl+R: the newest entry that has the text typed here, again for an older one.
void LineEditor::search() {
  const auto& entries = history_.entries();
  const std::string before = line_.text();
  std::string wanted;
  size_t at = entries.size();
  const auto older = [&](size_t from) {
    for (size_t i = from; i-- > 0;) {
      if (entries[i].find(wanted) != std::string::npos) return i;
    }
    return entries.size();
  };
  KeyPress key;
  for (;;) {
    const std::string shown = at < entries.size() ? entries[at] : "";
    const std::string prompt = "(search `" + visible_line(wanted) + "`) ";
    const size_t place = wanted.empty() ? 0 : std::min(shown.find(wanted), shown.size());
    show({prompt, shown, place});
    if (!wait_for_key(key)) return;
    if (key.key == Key::text || key.key == Key::paste) {
      wanted += key.text;
      at = older(at < entries.size() ? at + 1 : at);
    } else if (key.key == Key::backspace) {
      EditLine shorter;
      shorter.set(wanted);
      shorter.erase_left();
      wanted = shorter.text();
      at = wanted.empty() ? entries.size() : older(entries.size());
    } else if (key.key == Key::search) {
      const size_t next = wanted.empty() ? entries.size() : older(std::min(at, entries.size()));
      if (next < entries.size()) at = next;
    } else {
      break;
    }
  }
  const bool take = key.key != Key::give_up && key.key != Key::interrupt && at < entries.size();
  line_.set(take ? entries[at] : before);
  if (take) recalled_ = at;
  // Enter and what moves the cursor go on with what was found.
  if (take && key.key != Key::enter) edit(key);
}

void LineEditor::suspend() {
  screen_.finish(prompt_, line_.text());
  ::raise(SIGTSTP);
  let_signals(false);
}

}  // namespace nibble
