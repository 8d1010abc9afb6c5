// SPDX-License-Identifier: MIT
// A job on the command line: its text goes to the output, Ctrl+C is a request to stop, and on a
// terminal one line shows how far it is.
#pragma once
#include <chrono>
#include <optional>
#include <ostream>

#include "apps/command.h"
#include "apps/terminal/step_line.h"
#include "guard/held_signals.h"
#include "guard/interrupt.h"
#include "job/job_events.h"
#include "job/job_result.h"

namespace nibble {

class CommandEvents final : public JobEvents {
 public:
  explicit CommandEvents(Io& io);
  ~CommandEvents() override;
  void text(std::string_view lines) override;
  void run_begins(const std::filesystem::path& folder, int64_t steps) override;
  bool shows_steps() override { return live_; }
  // Outside of the steps Ctrl+C ends the program, as it does everywhere.
  void steps_begin() override;
  void steps_end() override;
  void export_begin() override { held_.emplace("the export"); }
  void export_end() override { held_.reset(); }
  bool stop_requested() override { return InterruptGuard::requested(); }
  void step_done(const StepRecord& step) override;
  void held_out_done(int64_t step, double loss) override;
  void gate_done(int64_t step, const ProbeScores& scores) override;

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  Io& io_;
  bool live_;  // steps are shown as they are done
  StepLine line_;
  // Of late, and everything between two steps included.
  double step_seconds_ = 0;
  std::optional<Clock::time_point> last_step_;
  Clock::time_point drawn_{};
  std::optional<InterruptGuard> interrupts_;
  std::optional<HeldSignals> held_;
};

inline ExitCode exit_code(const JobResult& result) {
  if (result.end == JobEnd::interrupted) return interrupted_by(InterruptGuard::signal());
  return result.ok() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace nibble
