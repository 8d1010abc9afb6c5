// SPDX-License-Identifier: MIT
// Log lines for people, on standard error: results belong on standard output.
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace nibble {

enum class LogLevel { silent = -1, quiet, info, debug };  // silent: not even warnings
void set_log_level(LogLevel level);
LogLevel log_level();
// Names and texts from files are among what is logged: whatever would act on a terminal is made
// visible. A standard error that cannot be written to is nobody's error: never throws for it.
void log_line(LogLevel level, std::string_view text);
// As it is, for a line that is drawn over itself.
void write_to_stderr(std::string_view text) noexcept;

template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  if (log_level() >= LogLevel::info) {
    log_line(LogLevel::info, fmt::format(f, std::forward<Args>(args)...));
  }
}
template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  if (log_level() >= LogLevel::debug) {
    log_line(LogLevel::debug, fmt::format(f, std::forward<Args>(args)...));
  }
}
// A warning is shown at every level but silent: something the user asked for will differ from the
// obvious.
template <class... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::quiet, "warning: " + fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace nibble
