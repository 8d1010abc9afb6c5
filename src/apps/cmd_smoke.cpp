// SPDX-License-Identifier: MIT
// nibble smoke: random tokens through a synthetic or a real model, with checkpoints. Finds out
// whether a machine can train at all, and how fast.
#include <ostream>

#include "apps/command.h"
#include "convert/init.h"
#include "core/log.h"
#include "job/memory_choice.h"
#include "job/slow_paths.h"
#include "job/train_choices.h"
#include "job/train_run.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

struct SmokeOptions {
  ModelOptions model;
  bool synthetic = true;
  std::optional<int64_t> in_features, out_features, max_layers, vocabulary;
  int64_t epochs = 1, steps_per_epoch = 10;
  BatchFlags batch{.seq_len = 8, .batch_size = 2, .accumulate = 1};
  TrainFlags train;
  RunFlags run;

  void visit_fields(Fields& f) {
    train.lr = 1e-3;
    train.loss = LossKind::scalar;
    model.visit_fields(f);
    f.section("Synthetic model");
    f.add(synthetic, {.flag = "--synthetic",
                      .help = "Random weights of the sizes below; false: the model of --model"});
    f.add(in_features,
          {.flag = "--in-features", .help = "Width of the model; default 1024", .least = 64});
    f.add(out_features,
          {.flag = "--out-features", .help = "Feed-forward width; default 1024", .least = 32});
    f.add(max_layers, {.flag = "--max-layers", .help = "Layers; default 2", .least = 1});
    f.add(vocabulary,
          {.flag = "--vocabulary", .help = "Tokens it knows; default 4096", .least = 16});
    f.section("Work");
    f.add(epochs, {.flag = "--epochs", .help = "Epochs of --steps-per-epoch", .least = 1});
    f.add(steps_per_epoch, {.flag = "--steps-per-epoch", .help = "Updates per epoch", .least = 1});
    batch.visit_fields(f);
    train.visit_fields(f);
    run.visit_fields(f);
  }
};

// Heads of 64, a quarter of them for keys and values where that comes out even.
Config synthetic_config(const SmokeOptions& o) {
  Config c;
  c.C = o.in_features.value_or(1024);
  c.F = o.out_features.value_or(1024);
  c.L = o.max_layers.value_or(2);
  if (c.C % 64 != 0 || c.F % 32 != 0) {
    throw_usage("--in-features must be a multiple of 64 and --out-features of 32, not {} and {}",
                c.C, c.F);
  }
  c.D = 64;
  c.Hq = c.C / 64;
  c.Hkv = c.Hq % 4 == 0 ? c.Hq / 4 : c.Hq;
  c.V = o.vocabulary.value_or(4096);
  c.tied = true;
  c.max_positions = 1 << 20;
  return c;
}

void check_options(const SmokeOptions& o) {
  if (!o.synthetic && !o.model.named()) {
    throw_usage("--synthetic false needs --model: which model to train");
  }
  if (o.synthetic && o.model.named()) {
    throw_usage("--model is only read with --synthetic false");
  }
  if (!o.synthetic && (o.in_features || o.out_features || o.max_layers || o.vocabulary)) {
    throw_usage(
        "--in-features, --out-features, --max-layers and --vocabulary are the sizes of a synthetic "
        "model; with --synthetic false they are those of --model");
  }
  constexpr int64_t kMostSteps = int64_t(1) << 50;
  if (o.epochs > kMostSteps / o.steps_per_epoch) {
    throw_usage("--epochs {} of --steps-per-epoch {} are too many steps", o.epochs,
                o.steps_per_epoch);
  }
  o.run.check();
}

ExitCode run_smoke(const SmokeOptions& o, Io& io) {
  check_options(o);
  ModelPaths paths;
  if (!o.synthetic) paths = resolve_model(o.model, TokenizerNeed::optional);
  refuse_replacing_input(o.run.vram_report, paths);
  const auto backend = make_backend(o.train.device, o.train.threads);
  RunRecorder recorder(create_run_folder(o.run.folder, "smoke"), "smoke", io.config,
                       o.epochs * o.steps_per_epoch, memory_source(*backend));
  recorder.set_steps_per_epoch(o.steps_per_epoch);
  if (!o.run.vram_report.empty()) recorder.also_report_memory_to(o.run.vram_report);
  recorder.phase("start", 0);
  Config config;
  fs::path weights;
  if (o.synthetic) {
    config = synthetic_config(o);
    weights = recorder.directory() / "synthetic.safetensors";
    ThreadPool pool(o.train.threads > 0 ? o.train.threads : default_thread_count());
    init_weights(config, weights, Container::safetensors, DType::bf16, o.train.seed, pool);
  } else {
    config = load_config(paths.config);
    weights = paths.weights;
  }
  const auto source = open_tensor_source(weights);
  recorder.device(backend->name());
  for (const InputFile& f : source->files()) recorder.input("weights", f.path());
  check_window(config, o.batch.seq_len);
  RandomBatches batches(config.V, o.batch.seq_len, o.batch.batch_size, o.train.seed);
  TrainSettings settings = o.train.settings();
  const PackBounds bounds = batches.bounds();
  settings.max_tokens = bounds.tokens;
  settings.max_outputs = bounds.outputs;
  settings.max_sequences = bounds.sequences;
  settings.schedule.steps = o.epochs * o.steps_per_epoch;
  const Config as_trained = training_config(config, *source, settings.untie);
  choose_memory(settings, o.train, *backend, as_trained, has_global_scales(*source),
                o.batch.accumulate);
  warn_of_slow_kernels(settings, *backend);
  TrainState state(*backend, config, *source, settings, as_trained);
  recorder.phase("model_loaded", 0);
  recorder.arenas(state.arenas());
  log_info("{}: {}", backend->name(), state.groups().describe());
  Trainer trainer(state);
  RunIdentity identity = run_identity(config, *source, settings);
  batches.add_identity(identity);
  identity["accumulate"] = fmt::format("{}", o.batch.accumulate);
  RunPlan plan;
  plan.steps = settings.schedule.steps;
  plan.accumulate = o.batch.accumulate;
  RunFlags flags = o.run;
  if (flags.save_every == 0 && !flags.checkpoint_dir.empty()) flags.save_every = o.steps_per_epoch;
  TrainRun run(trainer, batches, plan, flags, recorder, std::move(identity));
  run.resume();
  if (trainer.progress.step >= plan.steps) {
    io.out << fmt::format("no step to do: the checkpoint is at step {} of {}\n",
                          trainer.progress.step, plan.steps);
  }
  const RunEnd end = run.run(nullptr);
  recorder.arenas(state.arenas());  // their peaks, now that they are known
  if (end == RunEnd::interrupted) {
    io.out << fmt::format(
        "interrupted; go on with the same command and --resume --checkpoint-dir "
        "{}\n",
        run.checkpoint_directory().string());
  }
  recorder.finish(end == RunEnd::finished ? RunState::finished : RunState::interrupted);
  io.out << fmt::format("{} steps, loss {:.6f}, {} skipped\nrun folder {}\n", trainer.progress.step,
                        run.last_loss(), trainer.progress.skipped, recorder.directory().string());
  return ExitCode::ok;
}

}  // namespace

Command smoke_command() {
  return make_command<SmokeOptions>(
      "smoke", "Train on random tokens: does it work here, and how fast",
      "Without --model a small model with random weights is made. With --checkpoint-dir it saves\n"
      "after every epoch, and --resume goes on from there.",
      run_smoke);
}

}  // namespace nibble
