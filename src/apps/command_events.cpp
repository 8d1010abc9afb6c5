// SPDX-License-Identifier: MIT
#include "apps/command_events.h"

#include "core/command_line.h"
#include "core/live_line.h"
#include "core/log.h"

namespace nibble {
namespace {

constexpr std::chrono::milliseconds kDrawInterval{100};

}  // namespace

CommandEvents::CommandEvents(Io& io) : io_(io), live_(live_line_possible()) {}

CommandEvents::~CommandEvents() { erase_live_line(); }

void CommandEvents::text(std::string_view lines) {
  if (lines.empty()) return;
  erase_live_line();
  io_.out << lines << std::flush;
}

void CommandEvents::run_begins(const std::filesystem::path& folder, int64_t steps) {
  line_.steps = steps;
  const std::filesystem::path base = folder.parent_path();
  const std::string where =
      base == "nibble-runs" ? "" : " --runs-dir " + shell_quoted(base.string());
  log_info("run {}; from another terminal: nibble runs watch {}{}", folder.string(),
           shell_quoted(folder.filename().string()), where);
}

void CommandEvents::steps_begin() { interrupts_.emplace(TerminateIs::request); }

void CommandEvents::steps_end() {
  interrupts_.reset();
  erase_live_line();
}

void CommandEvents::step_done(const StepRecord& step) {
  const auto now = Clock::now();
  if (last_step_) {
    const double seconds = std::chrono::duration<double>(now - *last_step_).count();
    step_seconds_ += 0.1 * (seconds - step_seconds_);
  } else {
    step_seconds_ = step.seconds;
  }
  last_step_ = now;
  line_.at = step;
  line_.seconds_left = step_seconds_ * double(line_.steps - step.step);
  if (!live_ || (now - drawn_ < kDrawInterval && step.step != line_.steps)) return;
  draw();
}

void CommandEvents::draw() {
  drawn_ = Clock::now();
  draw_live_line(step_text(line_, live_line_columns()));
}

void CommandEvents::held_out_done(int64_t, double loss) {
  line_.held_out = loss;
  if (live_) draw();
}

void CommandEvents::gate_done(int64_t step, const ProbeScores& scores) {
  line_.gate_step = step;
  line_.gate.clear();
  for (const GroupScore& g : scores.groups) line_.gate.emplace_back(g.name, g.all.percent());
  if (live_ && line_.at.step > 0) draw();
}

}  // namespace nibble
