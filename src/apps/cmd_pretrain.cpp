// SPDX-License-Identifier: MIT
// nibble pretrain: the same trainer, from random weights on plain text.
#include "apps/command.h"
#include "apps/command_events.h"
#include "apps/options/train_options.h"
#include "comm/process_ranks.h"
#include "core/command_line.h"
#include "job/random_start.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct PretrainOptions {
  TrainJob job;
  fs::path init_file;

  void visit_fields(Fields& f) {
    f.section("Model");
    f.add(job.model.config, {.flag = "--config",
                             .help = "config.json of the model to make",
                             .value = "FILE",
                             .required = true});
    f.add(job.model.tokenizer, {.flag = "--tokenizer",
                                .help = "tokenizer.json, when it does not lie beside the config",
                                .value = "FILE"});
    f.add(init_file, {.flag = "--init-file",
                      .help = "Where the random weights are kept (one that exists is the start); "
                              "default: beside the output, made anew unless --resume is given",
                      .value = "FILE"});
    job.use = DataUse::pretrain;
    job.name = "pretrain";
    nibble::visit_fields(job, f);
  }
};

ExitCode run_pretrain(const PretrainOptions& o, Io& io) {
  if (launched_ranks() > 1) {
    throw_usage(
        "pretrain begins with weights that one process makes: make them with nibble init, then "
        "mpirun nibble train with them, or run pretrain alone");
  }
  TrainJob job = with_random_start(o.job, o.init_file);
  job.config = io.config;
  job.command = own_command_line();
  job.goes_on_by_itself = io.in_chain;
  CommandEvents events(io);
  return exit_code(run_train_job(job, open_train_inputs(job.model), events));
}

}  // namespace

Command pretrain_command() {
  return make_command<PretrainOptions>(
      "pretrain", "Train a model from random weights on plain text",
      "Documents are put end to end and cut into windows; attention stays inside a document and\n"
      "every token is scored. Everything else is as in train.",
      run_pretrain);
}

}  // namespace nibble
