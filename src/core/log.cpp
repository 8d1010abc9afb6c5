// SPDX-License-Identifier: MIT
#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "core/live_line.h"
#include "core/text/visible.h"
#include "core/warnings.h"

namespace nibble {
namespace {
std::atomic<LogLevel> g_level{LogLevel::info};
}

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

void log_line(LogLevel level, std::string_view text) {
  if (level > g_level) return;
  constexpr std::string_view kWarning = "warning: ";  // log_warning() begins with it
  if (text.starts_with(kWarning) && !collect_warning(text.substr(kWarning.size()))) return;
  // One write per line, so that lines of several threads do not mix.
  std::string line = visible_text(text);
  line += '\n';
  write_log_line(line);
}

void write_to_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace nibble
