// SPDX-License-Identifier: MIT
#include "job/random_start.h"

#include "convert/init.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "runtime/staged_output.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

fs::path random_start(const TrainJob& job, const fs::path& init_file, const Config& config) {
  fs::path file = init_file;
  if (file.empty()) {
    if (job.output.empty()) {
      throw_usage("pretrain needs --output: where the model goes, or --init-file: where it starts");
    }
    file = job.output;
    file += ".init.safetensors";
    if (fs::exists(file) && !job.run.resume && !job.force) {
      throw_usage(
          "{} is the start of an earlier run: go on with --resume, start from it with --init-file, "
          "or replace it with --force",
          file.string());
    }
  }
  if (fs::exists(file) && (job.run.resume || !init_file.empty())) {
    log_info("starting from {}", file.string());
    return file;
  }
  const FileLock lock = lock_output(file);
  ThreadPool pool(job.train.threads > 0 ? job.train.threads : default_thread_count());
  const InitSummary made =
      init_weights(config, file, Container::safetensors, DType::bf16, job.train.seed, pool);
  log_info("{}: {} parameters drawn with seed {}", file.string(), made.parameters, job.train.seed);
  return file;
}

}  // namespace

TrainJob with_random_start(TrainJob job, const fs::path& init_file) {
  job.check();
  job.model.model = random_start(job, init_file, load_config(job.model.config));
  if (job.model.tokenizer.empty()) {
    const fs::path beside = job.model.config.parent_path() / "tokenizer.json";
    if (fs::exists(beside)) job.model.tokenizer = beside;
  }
  return job;
}

}  // namespace nibble
