// SPDX-License-Identifier: MIT
// Points in time as text, in UTC.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace nibble {

using UtcTime = std::chrono::system_clock::time_point;

std::string utc_text(
    UtcTime t);              // "2026-02-26T10:11:12.1234567Z", ISO 8601 as .NET's "O" writes it
std::string utc_now_text();  // utc_text of this moment
std::string utc_stamp(UtcTime t);  // "20260226T101112Z", for names of files
std::optional<UtcTime> parse_utc(const std::string& text);  // of utc_text
std::string duration_text(double seconds);                  // "0:03:12", "2 d 0:03:12"

}  // namespace nibble
