// SPDX-License-Identifier: MIT
// nibble train: fine-tunes every parameter on prompt/response data.
#include "apps/command.h"
#include "apps/command_events.h"
#include "apps/options/model_options.h"
#include "apps/options/train_options.h"
#include "core/command_line.h"

namespace nibble {
namespace {

struct TrainOptions {
  TrainJob job;
  void visit_fields(Fields& f) {
    nibble::visit_fields(job.model, f);
    nibble::visit_fields(job, f);
  }
};

ExitCode run_train(const TrainOptions& o, Io& io) {
  TrainJob job = o.job;
  job.config = io.config;
  job.command = own_command_line();
  job.goes_on_by_itself = io.in_chain;
  CommandEvents events(io);
  return exit_code(
      run_train_job(job, open_train_inputs(job.model, job.data.chat_template), events));
}

}  // namespace

Command train_command() {
  return make_command<TrainOptions>(
      "train", "Fine-tune every parameter of a model on prompts and responses",
      "The forward sees NVFP4, the master is bf16, the moments are 8 bits. Only responses are\n"
      "scored, with the end token that closes them. The trained model is written in the form of\n"
      "its input: what did not change is copied byte for byte. It is then loaded again and must\n"
      "say what the trainer's own forward says. Ctrl+C finishes the step and saves a checkpoint.",
      run_train);
}

}  // namespace nibble
