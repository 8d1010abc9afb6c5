// SPDX-License-Identifier: MIT
// nibble smoke: random tokens through a synthetic or a real model, with checkpoints. Finds out
// whether a machine can train at all, and how fast.
#include "apps/command.h"
#include "apps/command_events.h"
#include "apps/options/model_options.h"
#include "apps/options/train_options.h"
#include "job/smoke_job.h"

namespace nibble {
namespace {

struct SmokeOptions {
  SmokeJob job;

  void visit_fields(Fields& f) {
    nibble::visit_fields(job.model, f);
    f.section("Synthetic model");
    f.add(job.synthetic,
          {.flag = "--synthetic",
           .help = "Random weights of the sizes below; false: the model of --model; default: where "
                   "none is named"});
    f.add(job.in_features,
          {.flag = "--in-features", .help = "Width of the model; default 1024", .least = 64});
    f.add(job.out_features,
          {.flag = "--out-features", .help = "Feed-forward width; default 1024", .least = 32});
    f.add(job.max_layers, {.flag = "--max-layers",
                           .help = "Layers; default 2, of a real model all; fewer: its first",
                           .least = 1});
    f.add(job.vocabulary,
          {.flag = "--vocabulary", .help = "Tokens it knows; default 4096", .least = 16});
    f.section("Work");
    f.add(job.epochs, {.flag = "--epochs", .help = "Epochs of --steps-per-epoch", .least = 1});
    f.add(job.steps_per_epoch,
          {.flag = "--steps-per-epoch", .help = "Updates per epoch", .least = 1});
    nibble::visit_fields(job.batch, f);
    nibble::visit_fields(job.train, f);
    nibble::visit_fields(job.run, f);
    f.add(job.force, {.flag = "--force",
                      .help = "Replace a --vram-report that exists",
                      .needs = "--vram-report"});
  }
};

ExitCode run_smoke(const SmokeOptions& o, Io& io) {
  SmokeJob job = o.job;
  job.config = io.config;
  CommandEvents events(io);
  return exit_code(run_smoke_job(job, events));
}

}  // namespace

Command smoke_command() {
  return make_command<SmokeOptions>(
      "smoke", "Train on random tokens: does it work here, and how fast",
      "Without --model a small model with random weights is made. With --checkpoint-dir it saves\n"
      "after every epoch, and --resume goes on from there.",
      run_smoke);
}

}  // namespace nibble
