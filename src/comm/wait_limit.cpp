// SPDX-License-Identifier: MIT
#include "comm/wait_limit.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/error.h"

namespace nibble {

double rank_limit() {
  constexpr double kDefault = 600;
  const char* const set = std::getenv("NIBBLE_RANK_LIMIT");
  if (!set) return kDefault;
  const std::string_view text(set);
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0) ||
      !std::isfinite(seconds)) {
    throw_usage("NIBBLE_RANK_LIMIT is '{}', expected the seconds a rank waits for another, e.g. {}",
                text, kDefault);
  }
  return seconds;
}

bool Patience::wait() {
  constexpr int kAtOnce = 64, kYields = 256;
  constexpr std::chrono::microseconds kShort{50}, kLong{500};
  ++looks_;
  if (looks_ <= kAtOnce) return true;
  if (looks_ <= kYields) {
    std::this_thread::yield();
    return true;
  }
  std::this_thread::sleep_for(looks_ < 4 * kYields ? kShort : kLong);
  return seconds() < limit_;
}

double Patience::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void throw_missing(const Comm& comm, const std::vector<int>& missing, double seconds) {
  std::string who;
  for (const int r : missing) {
    who += fmt::format("{}rank {} on {}", who.empty() ? "" : ", ", r, comm.host(r));
  }
  throw_device(
      "rank {} on {} waited {:.0f} s at {} for {}: it died, hangs, or is very slow. All ranks end "
      "now; go on with --resume. NIBBLE_RANK_LIMIT sets how many seconds a rank may take",
      comm.rank(), comm.host(comm.rank()), seconds, comm.where(), who);
}

}  // namespace nibble
