// SPDX-License-Identifier: MIT
// A job on the command line: its text goes to the output, Ctrl+C is a request to stop.
#pragma once
#include <optional>
#include <ostream>

#include "apps/command.h"
#include "guard/held_signals.h"
#include "guard/interrupt.h"
#include "job/job_events.h"
#include "job/job_result.h"

namespace nibble {

class CommandEvents final : public JobEvents {
 public:
  explicit CommandEvents(Io& io) : io_(io) {}
  void text(std::string_view lines) override { io_.out << lines; }
  // Outside of the steps Ctrl+C ends the program, as it does everywhere.
  void steps_begin() override { interrupts_.emplace(TerminateIs::request); }
  void steps_end() override { interrupts_.reset(); }
  void export_begin() override { held_.emplace("the export"); }
  void export_end() override { held_.reset(); }
  bool stop_requested() override { return InterruptGuard::requested(); }

 private:
  Io& io_;
  std::optional<InterruptGuard> interrupts_;
  std::optional<HeldSignals> held_;
};

inline ExitCode exit_code(const JobResult& result) {
  if (result.end == JobEnd::interrupted) return interrupted_by(InterruptGuard::signal());
  return result.ok() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace nibble
