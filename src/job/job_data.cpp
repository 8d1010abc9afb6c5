// SPDX-License-Identifier: MIT
#include "job/job_data.h"

#include <algorithm>

#include "core/log.h"

namespace nibble {

JobSamples load_samples(const TrainJob& job, const TrainInputs& in) {
  const auto load = [&](const std::filesystem::path& file) {
    return load_dataset(file, in.tokenizer, job.data.dataset(job.use, job.batch.seq_len, in.chat));
  };
  JobSamples s{load(job.data.train_data), std::nullopt};
  log_info("{}", s.train.summary());
  check_window(in.config, s.train.most_rows());
  if (!job.data.eval_data.empty()) {
    s.held_out = load(job.data.eval_data);
    check_window(in.config, s.held_out->most_rows());
  }
  return s;
}

JobBatches::JobBatches(const TrainJob& job, const JobSamples& samples)
    : train(samples.train, job.data.sample_mode, job.train.seed, job.batch.batch_size),
      bounds(train.bounds()) {
  if (!samples.held_out) return;
  held_out.emplace(*samples.held_out, SampleMode::sequential, 0, job.batch.batch_size,
                   EpochEnd::ends_batch);
  const PackBounds b = held_out->bounds();
  bounds = {std::max(bounds.tokens, b.tokens), std::max(bounds.outputs, b.outputs),
            std::max(bounds.sequences, b.sequences)};
}

}  // namespace nibble
