// SPDX-License-Identifier: MIT
// nibble train: fine-tunes every parameter on prompt/response data.
#include "apps/command.h"
#include "apps/command_events.h"
#include "apps/options/model_options.h"
#include "apps/options/train_options.h"
#include "comm/process_ranks.h"
#include "core/command_line.h"
#include "core/log.h"
#include "core/version.h"

namespace nibble {
namespace {

struct TrainOptions {
  TrainJob job;
  void visit_fields(Fields& f) {
    nibble::visit_fields(job.model, f);
    nibble::visit_fields(job, f);
  }
};

// Rank 0 speaks; an error says whose it is.
ExitCode run_as_rank(Comm& comm, TrainJob job, JobEvents& events) {
  if (!comm.leads()) set_log_level(LogLevel::silent);
  try {
    return exit_code(
        run_train_job(job, open_train_inputs(job.model, job.data.chat_template), events));
  } catch (const Error& e) {
    if (comm.leads() || *e.what() == '\0') throw;
    throw Error(e.code(),
                fmt::format("rank {} on {}: {}", comm.rank(), comm.host(comm.rank()), e.what()));
  }
}

ExitCode run_train(const TrainOptions& o, Io& io) {
  if (io.in_chain && launched_ranks() > 1) {
    throw_usage("stages of a chain are run by one rank: start each stage with mpirun of its own");
  }
  const auto comm = join_ranks();
  TrainJob job = o.job;
  job.program = version_line();
  if (comm->size() > 1) job.ranks = comm.get();
  job.config = io.config;
  job.command = own_command_line();
  job.goes_on_by_itself = io.in_chain;
  CommandEvents events(io);
  return run_as_rank(*comm, std::move(job), events);
}

}  // namespace

Command train_command() {
  return make_command<TrainOptions>(
      "train", "Fine-tune every parameter of a model on prompts and responses",
      "The forward sees NVFP4, the master is bf16, the moments are 8 bits. Only responses are\n"
      "scored, with the end token that closes them. The trained model is written in the form of\n"
      "its input: what did not change is copied byte for byte. It is then loaded again and must\n"
      "say what the trainer's own forward says. Ctrl+C ends the micro-batch and saves.",
      run_train);
}

}  // namespace nibble
