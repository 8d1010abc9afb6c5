// SPDX-License-Identifier: MIT
// nibble train: fine-tunes every parameter on prompt/response data.
#include "apps/command.h"
#include "job/train_job.h"

namespace nibble {
namespace {

struct TrainOptions {
  TrainJobOptions job;
  void visit_fields(Fields& f) {
    job.model.visit_fields(f);
    job.visit_fields(f, DataUse::fine_tune);
  }
};

ExitCode run_train(const TrainOptions& o, Io& io) {
  return run_train_job(o.job, open_train_inputs(o.job.model), DataUse::fine_tune, "train", io);
}

}  // namespace

Command train_command() {
  return make_command<TrainOptions>(
      "train", "Fine-tune every parameter of a model on prompts and responses",
      "The forward sees NVFP4, the master is bf16, the moments are 8 bits. Only responses are\n"
      "scored, with the <|im_end|> that closes them. The trained model is written in the form of\n"
      "its input: what did not change is copied byte for byte. It is then loaded again and must\n"
      "say what the trainer's own forward says. Ctrl+C finishes the step and saves a checkpoint.",
      run_train);
}

}  // namespace nibble
