// SPDX-License-Identifier: MIT
// The flags of a training job beside those every training command has.
#include "apps/options/run_folder_option.h"
#include "apps/options/train_options.h"

namespace nibble {

void visit_fields(RunSettings& o, Fields& f) {
  visit_fields(o.folder, f);
  f.add(o.log_every,
        {.flag = "--log-every",
         .help = "Steps between log lines, first and last always; default 10, and none "
                 "on a terminal, where one line shows every step",
         .least = 1});
  f.add(o.checkpoint_dir, {.flag = "--checkpoint-dir",
                           .help = "Where checkpoints are kept; default: in the run's folder",
                           .value = "DIR",
                           .common = true});
  f.add(
      o.save_every,
      {.flag = "--save-every-steps", .help = "Steps between checkpoints; 0: by time", .least = 0});
  f.add(o.save_minutes,
        {.flag = "--save-every-minutes",
         .help = "Minutes between checkpoints, 0: none by time; default 10, or 0 with "
                 "--save-every-steps. Where neither that nor --checkpoint-dir is given they are "
                 "removed after the export",
         .value = "M",
         .least = 0,
         .most = 1e6});
  f.add(o.keep,
        {.flag = "--keep-checkpoints",
         .help = "Newest checkpoints kept, 0: all; default 2, or 1 where none are asked for",
         .least = 0});
  f.add(o.resume,
        {.flag = "--resume",
         .help = "Go on from the newest checkpoint of --checkpoint-dir; where there is none, a "
                 "warning says so and the run begins at step 1",
         .common = true});
  f.add(o.vram_report, {.flag = "--vram-report",
                        .help = "Also write the memory report to this file",
                        .value = "FILE",
                        .aliases = {"--train-step-vram-report"}});
  f.add(o.tensorboard, {.flag = "--tensorboard",
                        .help = "Also write the curves to a folder, for TensorBoard; a run that "
                                "goes on with --resume goes on with them",
                        .value = "DIR"});
}

void visit_fields(GateSettings& o, Fields& f) {
  f.section("Gates");
  f.add(o.probes,
        {.flag = "--probes",
         .help = "Questions the model answers before, during and after the training, with "
                 "rules for the replies",
         .value = "FILE"});
  f.add(o.every, {.flag = "--probe-every",
                  .help = "Steps between gates; 0: only before the first step and after the last",
                  .value = "N",
                  .least = 0,
                  .needs = "--probes"});
  f.add(o.most, {.flag = "--probe-max",
                 .help = "Probes of each group at gates in between, always the same ones; 0: all",
                 .value = "N",
                 .least = 0,
                 .needs = "--probes"});
  f.add(o.min_score,
        {.flag = "--min-score",
         .help = "Percent that must pass: 95, or by group identity=98,retention=base-2 (base: "
                 "before the training), or identity/zh=98; below it at the end the exit code is 1",
         .value = "LIST",
         .needs = "--probes"});
  f.add(o.stop_when_passed,
        {.flag = "--stop-when-passed",
         .help = "End at the gate where every score is reached (default 95), on all probes",
         .needs = "--probe-every"});
  f.add_choice(
      o.on_collapse,
      {.flag = "--on-collapse",
       .help = "When losses or replies say that the model falls apart: stop with exit code "
               "1 where no sound run has such losses and otherwise say so (auto), say so "
               "and go on, always stop, go back to the last good gate, or begin again; "
               "the last two with half the rate"},
      {{"auto", OnCollapse::automatic},
       {"ignore", OnCollapse::ignore},
       {"stop", OnCollapse::stop},
       {"rollback", OnCollapse::rollback},
       {"restart", OnCollapse::restart}});
  f.add(o.max_restarts, {.flag = "--max-restarts",
                         .help = "How often --on-collapse restart or rollback may; then it stops",
                         .value = "N",
                         .least = 1,
                         .needs = "--on-collapse"});
  f.add(o.min_retention, {.flag = "--min-retention",
                          .help = "Percent of its first score the group retention must keep; below "
                                  "it is collapse",
                          .value = "PERCENT",
                          .least = 0,
                          .most = 100,
                          .needs = "--probes"});
  f.add(o.replies, {.flag = "--probe-replies",
                    .help = "Replies of each group and language recorded at each gate",
                    .value = "N",
                    .least = 0,
                    .needs = "--probes"});
}

void visit_fields(SelfTestSettings& o, Fields& f) {
  f.section("Self-test after the export");
  f.add(o.enabled, {.flag = "--self-test", .help = "Load the exported file and try it"});
  f.add(o.prompt, {.flag = "--test-prompt",
                   .help = "What to ask; default: the first training prompt",
                   .value = "TEXT"});
  f.add(o.expect, {.flag = "--test-expect",
                   .help = "Text the reply must contain; may be given several times",
                   .value = "TEXT"});
  f.add(o.max_tokens,
        {.flag = "--test-max-tokens", .help = "Tokens the reply may have", .least = 1});
}

void visit_fields(TrainJob& o, Fields& f) {
  f.section("Data");
  visit_fields(o.data, o.use, f);
  visit_fields(o.batch, f);
  f.add(o.steps,
        {.flag = "--steps", .help = "Updates; default: one epoch", .least = 1, .common = true});
  f.add(o.epochs, {.flag = "--epochs",
                   .help = "Times through the data, instead of --steps",
                   .above = 0,
                   .common = true});
  f.add(o.eval_every, {.flag = "--eval-every",
                       .help = "Steps between losses of --eval-data; 0: at the end only",
                       .least = 0,
                       .needs = "--eval-data"});
  if (o.use == DataUse::fine_tune) visit_fields(o.keep, f);
  f.section("Output");
  f.add(o.output,
        {.flag = "--output",
         .help = "The trained model: .dat, .safetensors, .gguf or a directory; default: in the "
                 "run's folder, of the input's kind",
         .value = "PATH",
         .aliases = {"--output-dat"},
         .common = true});
  f.add(o.force, {.flag = "--force",
                  .help = "Replace an --output or --vram-report that exists (never an input)"});
  f.add(o.write_output, {.flag = "--export", .help = "Write the trained model; false: only train"});
  visit_fields(o.train, f);
  visit_fields(o.run, f);
  visit_fields(o.gates, f);
  visit_fields(o.test, f);
}

}  // namespace nibble
