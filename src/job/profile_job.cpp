// SPDX-License-Identifier: MIT
#include "job/profile_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "convert/checkpoint_model.h"
#include "core/file.h"
#include "core/thread_pool.h"
#include "job/batch_source.h"
#include "job/memory_choice.h"
#include "job/setup/slow_paths.h"
#include "measure/bench_random.h"
#include "runtime/model_template.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A .txt of one sample a line, as the predecessor's one-step trainer took them: raw text, every
// token scored. Empty where it is something else, pairs among them.
std::vector<std::string> plain_lines(const std::filesystem::path& file) {
  if (format_named(file, DataUse::pretrain) != DataFormat::text) return {};
  const std::string text = read_text_file(file);
  std::vector<std::string> lines;
  for (const DataUnit& u : split_units(text, DataFormat::jsonl, Documents::paragraphs).units) {
    if (lines.empty() && u.text.find('\t') != std::string_view::npos) return {};
    if (const auto fault = find_fault(u)) {
      throw_format("{}:{}: {}", file.string(), fault->line, fault->what);
    }
    lines.emplace_back(trim_text(u.text));
  }
  return lines;
}

std::vector<PackedBatch> line_batches(const ProfileJob& job, const std::vector<std::string>& lines,
                                      const Tokenizer& tokenizer) {
  DatasetOptions options;
  options.use = DataUse::pretrain;
  options.seq_len = job.batch.seq_len;
  std::vector<PackedBatch> micro(static_cast<size_t>(job.batch.accumulate));
  auto next = uint64_t(job.sample_index);
  for (PackedBatch& b : micro) {
    std::vector<Dataset> data;
    std::vector<Sample> samples;
    for (int64_t i = 0; i < job.batch.batch_size; ++i) {
      const std::string& line = lines[size_t(next++ % lines.size())];
      data.push_back(parse_dataset(line, job.train_data.string(), tokenizer, options));
    }
    for (const Dataset& d : data) samples.push_back(d.sample(0));  // a longer line is cut
    pack(b, samples);
  }
  return micro;
}

std::vector<PackedBatch> batches_of(const ProfileJob& job, const ModelPaths& paths,
                                    const Config& config) {
  std::vector<PackedBatch> micro(static_cast<size_t>(job.batch.accumulate));
  if (job.train_data.empty()) {
    RandomBatches random(config.V, job.batch.seq_len, job.batch.batch_size, job.train.seed);
    uint64_t position = 0;
    for (PackedBatch& b : micro) position = random.next(b, position);
    return micro;
  }
  const Tokenizer tokenizer = load_tokenizer(paths.tokenizer);
  check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
  const std::vector<std::string> lines = plain_lines(job.train_data);
  if (!lines.empty()) return line_batches(job, lines, tokenizer);
  DataSettings data_settings;
  data_settings.truncate = true;
  const Dataset data = load_dataset(job.train_data, tokenizer,
                                    data_settings.dataset(DataUse::fine_tune, job.batch.seq_len,
                                                          choose_template({}, paths.tokenizer)));
  SampleOrder order(SampleMode::sequential, data.size(), 0);
  uint64_t position = uint64_t(job.sample_index);
  for (PackedBatch& b : micro) {
    position = pack_next(b, data, order, position, {job.batch.batch_size, 0});
  }
  return micro;
}

RepeatedSteps repeat_step(Trainer& trainer, std::span<const PackedBatch> micro, int64_t times) {
  RepeatedSteps steps;
  trainer.phase = trainer.part = {};
  for (int64_t i = 0; i < times; ++i) {
    const auto start = Clock::now();
    const StepResult r = trainer.step(micro);
    trainer.state().backend().sync();
    steps.ms.push_back(ms_since(start));
    steps.losses.push_back(r.loss);
    steps.not_finite += r.skipped || r.bad_tensors > 0 || !std::isfinite(r.loss);
  }
  return steps;
}

}  // namespace

ModelPaths ProfileJob::paths() const {
  if (!random_weights) {
    return resolve_model(model,
                         train_data.empty() ? TokenizerNeed::optional : TokenizerNeed::required);
  }
  if (model.named()) throw_usage("--random-weights takes no --model: nothing is read");
  if (!train_data.empty()) throw_usage("--random-weights has no tokenizer for --train-data");
  ModelPaths paths;
  paths.config = model.config;
  return paths;
}

void run_profile_job(const ProfileJob& job, const ModelPaths& paths, ProfileWatch& watch) {
  watch.reached("start");
  const Config config = load_config(paths.config);
  const auto source =
      job.random_weights
          ? make_random_source(config, job.train.seed, default_thread_count(), TiedHead::left_out)
          : open_weights(paths.weights, TiedMatrix::once);
  const auto backend = make_backend(job.train.device, job.train.threads);
  const std::vector<PackedBatch> micro = batches_of(job, paths, config);
  TrainSettings s = job.train.settings();
  for (const PackedBatch& b : micro) {
    for (const Sequence& q : b.sequences) check_window(config, q.q_len);
    s.max_tokens = std::max(s.max_tokens, b.tokens());
    s.max_outputs = std::max(s.max_outputs, b.outputs());
    s.max_sequences = std::max(s.max_sequences, int64_t(b.sequences.size()));
  }
  s.schedule.steps = job.warmup + 1 + job.repeat;
  const Config as_trained = training_config(config, *source, s.untie);
  choose_memory(s, job.train, *backend, as_trained, has_global_scales(*source),
                job.batch.accumulate);
  warn_of_slow_kernels(s, *backend);
  TrainState state(*backend, config, *source, s, as_trained);
  watch.loaded(state);
  watch.reached("model_loaded");
  Trainer trainer(state);
  watch.reached("state_initialized");
  watch.warming_up(true);
  for (int64_t i = 0; i < job.warmup; ++i) trainer.step(micro);
  backend->sync();
  watch.warming_up(false);
  watch.reached("batch_ready");
  watch.reached("zero_grad_done");  // gradients are overwritten, never cleared
  trainer.phase = [&](const char* name) {
    backend->sync();
    watch.reached(name);
  };
  trainer.part = [&](const char* name) {
    backend->sync();
    watch.part(name);
  };
  const auto start = Clock::now();
  const StepResult r = trainer.step(micro);
  watch.stepped(state, r, ms_since(start));
  if (job.repeat > 0) watch.repeated(trainer, micro, repeat_step(trainer, micro, job.repeat));
}

}  // namespace nibble
