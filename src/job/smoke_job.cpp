// SPDX-License-Identifier: MIT
#include "job/smoke_job.h"

#include "convert/checkpoint_model.h"
#include "convert/init.h"
#include "core/log.h"
#include "core/warnings.h"
#include "job/memory_choice.h"
#include "job/setup/slow_paths.h"
#include "runtime/output_files.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

// Heads of 64, a quarter of them for keys and values where that comes out even.
Config synthetic_config(const SmokeJob& job) {
  Config c;
  c.C = job.in_features.value_or(1024);
  c.F = job.out_features.value_or(1024);
  c.L = job.max_layers.value_or(2);
  if (c.C % 64 != 0 || c.F % 32 != 0) {
    throw_usage("--in-features must be a multiple of 64 and --out-features of 32, not {} and {}",
                c.C, c.F);
  }
  c.D = 64;
  c.Hq = c.C / 64;
  c.Hkv = c.Hq % 4 == 0 ? c.Hq / 4 : c.Hq;
  c.V = job.vocabulary.value_or(4096);
  c.tied = true;
  c.max_positions = 1 << 20;
  return c;
}

// A real model has its own sizes; only of its layers fewer can be asked for.
Config sized(Config c, const SmokeJob& job) {
  const auto differs = [](const std::optional<int64_t>& asked, int64_t has) {
    return asked && *asked != has;
  };
  if (differs(job.in_features, c.C) || differs(job.out_features, c.F) ||
      differs(job.vocabulary, c.V)) {
    log_warning(
        "--in-features, --out-features and --vocabulary are sizes of a synthetic model; this one "
        "has a width of {}, a feed-forward of {} and {} tokens",
        c.C, c.F, c.V);
  }
  if (job.max_layers && *job.max_layers < c.L) {
    log_info("--max-layers: the first {} of {} layers", *job.max_layers, c.L);
    c.L = *job.max_layers;
  }
  return c;
}

}  // namespace

void SmokeJob::check() const {
  if (!makes_model() && !model.named()) {
    throw_usage("--synthetic false needs --model: which model to train");
  }
  constexpr int64_t kMostSteps = int64_t(1) << 50;
  if (epochs > kMostSteps / steps_per_epoch) {
    throw_usage("--epochs {} of --steps-per-epoch {} are too many steps", epochs, steps_per_epoch);
  }
  run.check();
}

JobResult run_smoke_job(const SmokeJob& asked, JobEvents& events) {
  SmokeJob job = asked;
  if (job.run.resume && job.run.checkpoint_dir.empty()) {
    job.run.checkpoint_dir = "checkpoints";
    log_info("--resume without --checkpoint-dir: checkpoints are kept in ./checkpoints");
  }
  job.check();
  const WarningCollector warnings;
  const bool synthetic = job.makes_model();
  if (synthetic && job.model.named()) {
    log_warning("--synthetic: random weights are trained, the model that is named is not read");
  }
  ModelPaths paths;
  if (!synthetic) paths = resolve_model(job.model, TokenizerNeed::optional);
  check_output_file(job.run.vram_report, job.force ? Overwrite::allow : Overwrite::refuse, paths);
  const std::optional<FileLock> checkpoints = lock_checkpoints(job.run);
  const auto backend = make_backend(job.train.device, job.train.threads);
  RunRecorder recorder(create_run_folder(job.run.folder, "smoke"), "smoke", job.config,
                       job.epochs * job.steps_per_epoch, memory_source(*backend));
  recorder.record_warnings_of(warnings);
  recorder.set_steps_per_epoch(job.steps_per_epoch);
  if (!job.run.vram_report.empty()) recorder.also_report_memory_to(job.run.vram_report);
  recorder.phase("start", 0);
  Config config;
  fs::path weights;
  if (synthetic) {
    config = synthetic_config(job);
    weights = recorder.directory() / "synthetic.safetensors";
    ThreadPool pool(job.train.threads > 0 ? job.train.threads : default_thread_count());
    init_weights(config, weights, Container::safetensors, DType::bf16, job.train.seed, pool);
  } else {
    config = sized(load_config(paths.config), job);
    weights = paths.weights;
  }
  const auto source = open_weights(weights, TiedMatrix::once);
  recorder.device(backend->name());
  for (const InputFile& f : source->files()) recorder.input("weights", f);
  check_window(config, job.batch.seq_len);
  RandomBatches batches(config.V, job.batch.seq_len, job.batch.batch_size, job.train.seed);
  TrainSettings settings = job.train.settings();
  const PackBounds bounds = batches.bounds();
  settings.max_tokens = bounds.tokens;
  settings.max_outputs = bounds.outputs;
  settings.max_sequences = bounds.sequences;
  settings.schedule.steps = job.epochs * job.steps_per_epoch;
  const Config as_trained = training_config(config, *source, settings.untie);
  choose_memory(settings, job.train, *backend, as_trained, has_global_scales(*source),
                job.batch.accumulate);
  warn_of_slow_kernels(settings, *backend);
  TrainState state(*backend, config, *source, settings, as_trained);
  recorder.phase("model_loaded", 0);
  recorder.arenas(state.arenas().all());
  log_info("{}: {}", backend->name(), state.groups().describe());
  Trainer trainer(state);
  RunIdentity identity = run_identity(config, settings);
  batches.add_identity(identity);
  identity["accumulate"] = fmt::format("{}", job.batch.accumulate);
  const RunPlan plan{settings.schedule.steps, job.batch.accumulate, 0};
  RunSettings run_settings = job.run;
  if (run_settings.save_every == 0 && !run_settings.checkpoint_dir.empty()) {
    run_settings.save_every = job.steps_per_epoch;
  }
  TrainRun run(trainer, batches, plan, run_settings, recorder, std::move(identity), events);
  run.resume();
  events.run_begins(recorder.directory(), plan.steps);
  const int64_t begun_at = trainer.progress.step;
  const RunEnd end = run.run(nullptr);
  recorder.arenas(state.arenas().all());  // their peaks, now that they are known
  if (end == RunEnd::interrupted) {
    events.text(
        fmt::format("interrupted; go on with the same command and --resume --checkpoint-dir {}\n",
                    run.checkpoint_directory().string()));
  }
  if (end == RunEnd::finished && !run_settings.asked_for_checkpoints()) {
    remove_checkpoints_after(run.checkpoint_directory(), -1);
    recorder.checkpoints_removed();
  }
  const int64_t done = trainer.progress.step - begun_at;
  std::string said = fmt::format("{} steps, loss {:.6f}, {} skipped\n", trainer.progress.step,
                                 run.last_loss(), trainer.progress.skipped);
  if (done <= 0) {  // no step of this run has a loss to tell
    said = fmt::format(
        "nothing was trained: the checkpoint is at step {} of {} already; more --epochs go on\n",
        begun_at, plan.steps);
  } else if (begun_at > 0) {
    said = fmt::format("{} steps after the {} of the checkpoint, loss {:.6f}, {} skipped\n", done,
                       begun_at, run.last_loss(), trainer.progress.skipped);
  }
  if (end == RunEnd::collapsed) {
    said += fmt::format("collapse at step {}: {}\n", trainer.progress.step, run.collapse());
    recorder.finish(RunState::collapsed, run.collapse());
  } else {
    recorder.finish(end == RunEnd::finished ? RunState::finished : RunState::interrupted);
  }
  events.text(fmt::format("{}run folder {}\n", said, recorder.directory().string()));
  JobResult result;
  result.end = end == RunEnd::finished    ? JobEnd::finished
               : end == RunEnd::collapsed ? JobEnd::collapsed
                                          : JobEnd::interrupted;
  result.steps = trainer.progress.step;
  result.folder = recorder.directory();
  return result;
}

}  // namespace nibble
