// SPDX-License-Identifier: MIT
#include "job/job_data.h"

#include <algorithm>

#include "core/log.h"
#include "train/dataset_remarks.h"

namespace nibble {

int64_t JobSamples::all_kept() const {
  int64_t n = 0;
  for (const Dataset& d : kept) n += d.size();
  return n;
}

namespace {

// What a person would want to know before a night of training, once and in the record.
void warn_of_what_is_left_out(const std::filesystem::path& file, const Dataset& d,
                              int64_t seq_len) {
  const DatasetCounts& c = d.counts();
  if (!c.ignored.empty()) log_warning("{}: {}", file.string(), c.ignored.text());
  if (c.skipped > 0) {
    log_warning("{}: {} of its {} lines cannot be used and were left out (--skip-bad-lines)",
                file.string(), c.skipped, c.lines);
  }
  if (c.truncated == 0) return;
  std::string lost = fmt::format(
      "{} of {} samples are longer than --seq-len {} and lose {} tokens "
      "from their left",
      c.truncated, c.samples, seq_len, c.lost_tokens);
  if (c.truncated_responses > 0) {
    lost += fmt::format("; {} of them lose {} tokens of what should be learned",
                        c.truncated_responses, c.lost_response_tokens);
  }
  log_warning("{}: {}; --seq-len {} would hold them all", file.string(), lost, c.longest - 1);
}

void warn_of_contradictions(const std::filesystem::path& file, const Dataset& d,
                            const Tokenizer& tokenizer) {
  const Contradictions c = contradictions(d);
  if (c.prompts == 0) return;
  log_warning(
      "{}: {} prompt{} with more than one answer ({} samples), which can only be learned half; the "
      "first: {}",
      file.string(), c.prompts, c.prompts == 1 ? "" : "s", c.samples,
      excerpt(tokenizer.decode(c.prompt, DecodeSpecial::skip)));
}

void warn_of_shared(const DataSettings& data, const Dataset& taught, const Dataset& held_out) {
  const int64_t shared = shared_samples(taught, held_out);
  if (shared == 0) return;
  const std::string which = shared == held_out.size()
                                ? "every sample"
                                : fmt::format("{} of {} samples", shared, held_out.size());
  log_warning(
      "--eval-data {}: {} stand{} in the training data, too: the held-out loss says little about "
      "what was not taught; nibble data split makes a held-out part",
      data.eval_data.string(), which, shared == held_out.size() ? "s" : "");
}

}  // namespace

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
    const std::string summary = s.train->summary();  // its first line; warnings say the others
    log_info("{}", summary.substr(0, summary.find('\n')));
    warn_of_what_is_left_out(job.data.train_data, *s.train, job.batch.seq_len);
    if (job.use == DataUse::fine_tune) {
      warn_of_contradictions(job.data.train_data, *s.train, in.tokenizer);
    }
  }
  if (!job.data.eval_data.empty()) {
    s.held_out = load(job.data.eval_data);
    warn_of_what_is_left_out(job.data.eval_data, *s.held_out, job.batch.seq_len);
    if (s.train) warn_of_shared(job.data, *s.train, *s.held_out);
  }
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
