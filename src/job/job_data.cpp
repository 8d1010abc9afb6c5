// SPDX-License-Identifier: MIT
#include "job/job_data.h"

#include <algorithm>

#include "core/log.h"

namespace nibble {

int64_t JobSamples::all_kept() const {
  int64_t n = 0;
  for (const Dataset& d : kept) n += d.size();
  return n;
}

JobSamples load_samples(const TrainJob& job, const TrainInputs& in) {
  const auto load = [&](const std::filesystem::path& file) {
    Dataset d =
        load_dataset(file, in.tokenizer, job.data.dataset(job.use, job.batch.seq_len, in.chat));
    check_window(in.config, d.most_rows());
    return d;
  };
  JobSamples s;
  if (!job.data.train_data.empty()) {
    s.train = load(job.data.train_data);
    log_info("{}", s.train->summary());
  }
  if (!job.data.eval_data.empty()) s.held_out = load(job.data.eval_data);
  return s;
}

Dataset load_kept(const TrainJob& job, const TrainInputs& in, const KeptSource& source,
                  const std::filesystem::path& made) {
  const bool text = source.kind == KeptKind::text || source.kind == KeptKind::self;
  DatasetOptions o = job.data.dataset(DataUse::fine_tune, job.batch.seq_len, in.chat);
  o.use = text ? DataUse::pretrain : DataUse::fine_tune;
  o.format = DataFormat::automatic;
  o.long_response = LongResponse::cut;  // nothing is learned that could be learned wrongly
  o.documents = Documents::whole_file;  // windows of running text
  if (text) {
    o.document_end = in.tokenizer.endoftext();
    if (!o.document_end && !in.config.eos_ids.empty()) o.document_end = in.config.eos_ids.front();
  }
  Dataset d =
      load_dataset(made.empty() ? std::filesystem::path(source.name) : made, in.tokenizer, o);
  check_window(in.config, d.most_rows());
  log_info("kept, {}: {}", source.name, d.summary());
  return d;
}

JobBatches::JobBatches(const TrainJob& job, const JobSamples& samples) {
  const SampleMode mode = job.data.sample_mode;
  if (samples.kept.empty()) {
    train = std::make_unique<DatasetBatches>(*samples.train, mode, job.train.seed,
                                             job.batch.batch_size);
  } else {
    train = std::make_unique<KeepingBatches>(
        samples.train ? &*samples.train : nullptr, samples.kept,
        job.keep.share_of(samples.train.has_value()), mode, job.train.seed, job.batch.batch_size);
  }
  bounds = train->bounds();
  if (!samples.held_out) return;
  held_out.emplace(*samples.held_out, SampleMode::sequential, 0, job.batch.batch_size,
                   EpochEnd::ends_batch);
  const PackBounds b = held_out->bounds();
  bounds.tokens = std::max(bounds.tokens, b.tokens);
  bounds.outputs = std::max(bounds.outputs, b.outputs);
  bounds.sequences = std::max(bounds.sequences, b.sequences);
}

}  // namespace nibble
