// SPDX-License-Identifier: MIT
#include "core/utc_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace nibble {
namespace {

std::tm fields_of(UtcTime t) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(t));
  std::tm f{};
  ::gmtime_r(&seconds, &f);
  return f;
}

using Ticks = std::chrono::duration<int64_t, std::ratio<1, 10'000'000>>;  // of .NET

}  // namespace

std::string utc_text(UtcTime t) {
  const std::tm f = fields_of(t);
  const auto part =
      std::chrono::duration_cast<Ticks>(t - std::chrono::floor<std::chrono::seconds>(t));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z", f.tm_year + 1900, f.tm_mon + 1,
                     f.tm_mday, f.tm_hour, f.tm_min, f.tm_sec, part.count());
}

std::string utc_now_text() { return utc_text(std::chrono::system_clock::now()); }

std::string utc_stamp(UtcTime t) {
  const std::tm f = fields_of(t);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", f.tm_year + 1900, f.tm_mon + 1, f.tm_mday,
                     f.tm_hour, f.tm_min, f.tm_sec);
}

std::optional<UtcTime> parse_utc(const std::string& text) {
  std::tm f{};
  int ticks = 0, end = 0;
  const int n = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%7dZ%n", &f.tm_year, &f.tm_mon,
                            &f.tm_mday, &f.tm_hour, &f.tm_min, &f.tm_sec, &ticks, &end);
  if (n != 7 || size_t(end) != text.size() || end == 0) return std::nullopt;
  f.tm_year -= 1900;
  f.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&f)) +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(Ticks(ticks));
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = int64_t(std::clamp(seconds, 0.0, 1e12) + 0.5);
  const std::string clock = fmt::format("{}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60);
  return s < 86400 ? clock : fmt::format("{} d {}", s / 86400, clock);
}

}  // namespace nibble
