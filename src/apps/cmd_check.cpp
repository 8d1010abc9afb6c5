// SPDX-License-Identifier: MIT
// nibble check: is this model, in this program, on this machine, sound?
#include "apps/command.h"
#include "apps/options/check_options.h"
#include "eval/checks.h"

namespace nibble {
namespace {

struct CheckCommandOptions {
  CheckOptions checks;
  void visit_fields(Fields& f) { nibble::visit_fields(checks, f); }
};

ExitCode run_check(const CheckCommandOptions& o, Io& io) {
  return run_checks(o.checks, io.out) ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command check_command() {
  return make_command<CheckCommandOptions>(
      "check", "Look for NaN and collapse, put probes, compare cache modes and execution paths",
      "Each check ends with a line PASS or FAIL and its figure; when one fails the exit code is "
      "1.\n"
      "--paths compares with the fp32 forward of the whole sequence: the cache and training's\n"
      "forward must agree to 1e-5, lossy paths within --max-rel and --min-cosine at every layer. "
      "A\n"
      "model on a GPU is held against the same file on the CPU: in fp32 within 2.5e-5, times a\n"
      "quarter of the layers.",
      run_check);
}

}  // namespace nibble
