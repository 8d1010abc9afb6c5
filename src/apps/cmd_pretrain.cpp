// SPDX-License-Identifier: MIT
// nibble pretrain: the same trainer, from random weights on plain text.
#include "apps/command.h"
#include "convert/init.h"
#include "core/log.h"
#include "job/train_job.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct PretrainOptions {
  TrainJobOptions job;
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
    job.visit_fields(f, DataUse::pretrain);
  }
};

// The start of the run is a file like any other, so that a run can be repeated and resumed (its
// identity is checked then). One of an earlier run is not taken for this one's by mistake.
fs::path random_start(const PretrainOptions& o, const Config& config) {
  fs::path file = o.init_file;
  if (file.empty()) {
    if (o.job.output.empty()) {
      throw_usage("pretrain needs --output: where the model goes, or --init-file: where it starts");
    }
    file = o.job.output;
    file += ".init.safetensors";
    if (fs::exists(file) && !o.job.run.resume && !o.job.force) {
      throw_usage(
          "{} is the start of an earlier run: go on with --resume, start from it with --init-file, "
          "or replace it with --force",
          file.string());
    }
  }
  if (fs::exists(file) && (o.job.run.resume || !o.init_file.empty())) {
    log_info("starting from {}", file.string());
    return file;
  }
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  ThreadPool pool(o.job.train.threads > 0 ? o.job.train.threads : default_thread_count());
  const InitSummary made =
      init_weights(config, file, Container::safetensors, DType::bf16, o.job.train.seed, pool);
  log_info("{}: {} parameters drawn with seed {}", file.string(), made.parameters,
           o.job.train.seed);
  return file;
}

ExitCode run_pretrain(const PretrainOptions& o, Io& io) {
  TrainJobOptions job = o.job;
  job.check();
  job.model.model = random_start(o, load_config(o.job.model.config));
  if (job.model.tokenizer.empty()) {
    const fs::path beside = job.model.config.parent_path() / "tokenizer.json";
    if (fs::exists(beside)) job.model.tokenizer = beside;
  }
  return run_train_job(job, open_train_inputs(job.model), DataUse::pretrain, "pretrain", io);
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
