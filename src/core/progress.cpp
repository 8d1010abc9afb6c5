// SPDX-License-Identifier: MIT
#include "core/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/live_line.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/text/visible.h"

namespace nibble {
namespace {
using Clock = std::chrono::steady_clock;
double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
}  // namespace

Progress::Progress(const std::string& what, uint64_t total, std::string unit)
    : what_(visible_line(what)),
      unit_(std::move(unit)),
      total_(total),
      start_(Clock::now()),
      last_(start_),
      terminal_(live_line_possible()) {}

Progress::~Progress() {
  if (!drawn_) return;
  draw(seconds(Clock::now() - start_));
  if (terminal_) leave_live_line();
}

void Progress::update(uint64_t done) {
  done_ = done;
  if (log_level() == LogLevel::quiet) return;
  const auto now = Clock::now();
  const double elapsed = seconds(now - start_);
  if (elapsed < 2.0 || seconds(now - last_) < (terminal_ ? 0.2 : 10.0)) return;
  last_ = now;
  draw(elapsed);
}

void Progress::draw(double elapsed_s) {
  drawn_ = true;
  const auto show = [&](uint64_t n) {
    return unit_ == "bytes" ? format_bytes(n) : fmt::format("{} {}", n, unit_);
  };
  const double share = total_ ? std::min(1.0, double(done_) / double(total_)) : 0;
  const double left = share > 0 ? elapsed_s * (1 - share) / share : 0;
  // What matters first: a narrow terminal cuts the end.
  const std::string line =
      fmt::format("{:3.0f} %, {:.0f} s left: {} ({} of {}, {:.0f} s)", share * 100, left, what_,
                  show(done_), show(total_), elapsed_s);
  if (terminal_) {
    draw_live_line(line);
  } else {
    write_log_line(line + "\n");
  }
}

}  // namespace nibble
