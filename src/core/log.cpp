// SPDX-License-Identifier: MIT
#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace nibble {
namespace {
std::atomic<LogLevel> g_level{LogLevel::info};
}

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

void log_line(LogLevel, std::string_view text) {
  // One write per line, so that lines of several threads do not mix.
  std::string line(text);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace nibble
