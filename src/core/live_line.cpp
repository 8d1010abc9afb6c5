// SPDX-License-Identifier: MIT
#include "core/live_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "core/log.h"
#include "core/text/columns.h"
#include "core/text/visible.h"

namespace nibble {
namespace {

constexpr std::string_view kStart = "\r\x1b[K";

std::mutex line_mutex;
std::string shown;  // empty: there is none

}  // namespace

bool live_line_possible() {
  if (log_level() == LogLevel::quiet || ::isatty(STDERR_FILENO) == 0) return false;
  const char* const kind = std::getenv("TERM");
  return kind && *kind && std::string_view(kind) != "dumb";
}

size_t live_line_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
  return size_t(size.ws_col) - 1;  // in the last column some terminals wrap, some do not
}

void draw_live_line(std::string_view text) {
  const std::string line = clipped(visible_line(text), live_line_columns());
  const std::lock_guard lock(line_mutex);
  shown = line;
  write_to_stderr(std::string(kStart) + line);
}

void erase_live_line() {
  const std::lock_guard lock(line_mutex);
  if (shown.empty()) return;
  shown.clear();
  write_to_stderr(kStart);
}

void leave_live_line() {
  const std::lock_guard lock(line_mutex);
  if (shown.empty()) return;
  shown.clear();
  write_to_stderr("\n");
}

void write_log_line(std::string_view line) {
  const std::lock_guard lock(line_mutex);
  if (shown.empty()) return write_to_stderr(line);
  write_to_stderr(std::string(kStart) + std::string(line) + shown);
}

}  // namespace nibble
