// SPDX-License-Identifier: MIT
#include "apps/editor/edit_screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace nibble {
namespace {

std::string up(size_t rows) { return rows == 0 ? "" : fmt::format("\x1b[{}A", rows); }

// The end of a prompt that would leave no room for the text behind it.
std::string_view shortened(std::string_view prompt, int columns) {
  while (text_width(prompt) > columns / 2) prompt.remove_prefix(next_character(prompt, 0));
  return prompt;
}

}  // namespace

EditScreen::Size EditScreen::size() const {
  winsize w{};
  Size s;
  if (::ioctl(fd_, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) s.columns = w.ws_col;
  if (w.ws_row > 0) s.lines = w.ws_row;
  return s;
}

void EditScreen::write(std::string_view s) {
  while (!s.empty()) {
    const ssize_t n = ::write(fd_, s.data(), s.size());
    if (n < 0 && errno != EINTR) return;  // nobody sees it, and reading will say why
    if (n > 0) s.remove_prefix(size_t(n));
  }
}

std::string EditScreen::row_text(std::string_view prompt, std::string_view text,
                                 const ScreenRow& row, size_t until) const {
  // Later lines of the text begin below the first.
  std::string out;
  if (row.first_of_line) {
    out = row.begin == 0 ? std::string(prompt) : std::string(size_t(text_width(prompt)), ' ');
  }
  for (size_t at = row.begin, next; at < until; at = next) {
    next = next_character(text, at);
    out += drawn_character(text.substr(at, next - at));
  }
  return out;
}

// To the beginning of what was drawn. A terminal that was made narrower has broken its rows.
std::string EditScreen::to_top(int columns) {
  if (columns == columns_ || shown_.empty()) return "\r" + up(cursor_row_);
  size_t rows = cursor_row_;
  if (columns < columns_) {
    rows = row_of(screen_rows(shown_[cursor_row_], 0, columns), cursor_at_);
    for (size_t i = 0; i < cursor_row_; ++i) rows += screen_rows(shown_[i], 0, columns).size();
  }
  // Rows that were broken are one line to the terminal, which it would join when it gets wider; as
  // soon as they are erased, they are not.
  return "\r" + up(rows) + "\x1b[J";
}

void EditScreen::draw(std::string_view prompt, std::string_view text, size_t cursor) {
  if (plain_) return draw_plain(prompt, text);
  const Size s = size();
  prompt = shortened(prompt, s.columns);
  const auto rows = screen_rows(text, text_width(prompt), std::max(2, s.columns - 1));
  const size_t most = size_t(std::max(1, s.lines - 1)), at = row_of(rows, cursor);
  top_ = std::min(top_, at);
  if (at >= top_ + most) top_ = at - most + 1;
  if (rows.size() <= most) top_ = 0;
  const size_t end = std::min(rows.size(), top_ + most);

  std::string out = to_top(s.columns);
  shown_.clear();
  for (size_t i = top_; i < end; ++i) {
    if (i > top_) out += "\r\n";
    shown_.push_back(row_text(prompt, text, rows[i], rows[i].end));
    out += shown_.back() + "\x1b[K";
  }
  const std::string before_cursor = row_text(prompt, text, rows[at], cursor);
  out += "\x1b[J\r" + up(end - 1 - at) + before_cursor;
  write(out);
  cursor_row_ = at - top_;
  cursor_at_ = before_cursor.size();
  columns_ = s.columns;
  begun_ = true;
}

void EditScreen::finish(std::string_view prompt, std::string_view text, std::string_view behind) {
  if (plain_) {
    draw_plain(prompt, text);
    write(std::string(echo_ ? behind : "") + "\n");
  } else {
    const Size s = size();
    prompt = shortened(prompt, s.columns);
    std::string out = to_top(s.columns) + "\x1b[J";
    for (const ScreenRow& row : screen_rows(text, text_width(prompt), std::max(2, s.columns - 1))) {
      out += row_text(prompt, text, row, row.end) + "\r\n";
    }
    if (!behind.empty()) out.insert(out.size() - 2, behind);
    write(out);
  }
  begin_anew();
}

void EditScreen::begin_anew() {
  top_ = cursor_row_ = cursor_at_ = 0;
  shown_.clear();
  plain_text_.clear();
  begun_ = false;
}

void EditScreen::clear() {
  if (!plain_) write("\x1b[H\x1b[2J");
  begin_anew();
}

void EditScreen::draw_plain(std::string_view prompt, std::string_view text) {
  std::string out;
  if (!begun_) out += prompt;
  begun_ = true;
  if (echo_) {
    size_t same = 0;
    while (same < text.size() && same < plain_text_.size()) {
      const size_t next = next_character(text, same);
      if (next != next_character(plain_text_, same) ||
          text.substr(same, next - same) != plain_text_.substr(same, next - same)) {
        break;
      }
      same = next;
    }
    const auto drawn = [](std::string_view part) {
      std::string all;
      for (size_t at = 0, next; at < part.size(); at = next) {
        next = next_character(part, at);
        all += part[at] == '\n' ? "\n" : drawn_character(part.substr(at, next - at));
      }
      return all;
    };
    for (int i = text_width(std::string_view(plain_text_).substr(same)); i > 0; --i) {
      out += "\b \b";
    }
    out += drawn(text.substr(same));
  }
  plain_text_ = text;
  write(out);
}

size_t EditScreen::vertical(std::string_view prompt, std::string_view text, size_t cursor, int by) {
  const int columns = size().columns;
  prompt = shortened(prompt, columns);
  const auto rows = screen_rows(text, text_width(prompt), std::max(2, columns - 1));
  const size_t at = row_of(rows, cursor);
  if ((by < 0 && at == 0) || (by > 0 && at + 1 == rows.size())) return text.size() + 1;
  const auto lead = [&](const ScreenRow& r) { return r.first_of_line ? text_width(prompt) : 0; };
  const int column =
      lead(rows[at]) + text_width(text.substr(rows[at].begin, cursor - rows[at].begin));
  const ScreenRow& to = by < 0 ? rows[at - 1] : rows[at + 1];
  size_t place = to.begin;
  for (int width = lead(to); place < to.end;) {
    const size_t next = next_character(text, place);
    width += character_width(text.substr(place, next - place));
    // A row that ends because it is full has no place behind its last character.
    if (width > column || (next == to.end && row_of(rows, next) != row_of(rows, to.begin))) break;
    place = next;
  }
  return place;
}

}  // namespace nibble
