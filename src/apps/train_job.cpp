// SPDX-License-Identifier: MIT
#include "apps/train_job.h"

#include <cmath>
#include <ostream>

#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/thread_pool.h"
#include "nlohmann/json.hpp"
#include "train/trained_source.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

fs::path directory_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Where the trained model goes: --output, or a new one in the run's folder of the input's kind.
fs::path output_path(const TrainJobOptions& o, const TensorSource& source, const fs::path& run) {
  if (!o.output.empty()) return o.output;
  return run / (source.format() == "dat" ? "model.dat" : "model");
}

// The first sample alone, as the file's own words for the self-test.
SelfTestReference reference_of(Trainer& trainer, const Dataset& data) {
  SelfTestReference r;
  const Sample first = data.sample(0);
  pack(r.batch, std::span(&first, 1));
  r.loss = trainer.evaluate(r.batch);
  const auto rows = std::span(r.batch.ids).first(size_t(r.batch.out_rows.front()) + 1);
  r.prompt_ids.assign(rows.begin(), rows.end());
  return r;
}

// config.json and the tokenizer's files beside the weights.
void write_companions(const TrainInputs& in, const fs::path& out, Container container, bool untied,
                      Overwrite overwrite) {
  const fs::path to = container == Container::directory ? out : directory_of(out);
  std::string config = read_text_file(in.paths.config);
  if (untied && in.config.tied && container != Container::dat) {
    auto json = nlohmann::ordered_json::parse(config);
    json["tie_word_embeddings"] = false;
    config = json.dump(2) + "\n";
  }
  write_companion(config, to / "config.json", overwrite);
  copy_companions(directory_of(in.paths.config), to, overwrite);
  if (!fs::exists(to / "tokenizer.json")) copy_companion(in.paths.tokenizer, to, overwrite);
}

}  // namespace

void TrainJobOptions::visit_fields(Fields& f, DataUse use) {
  f.section("Data");
  data.visit_fields(f, use);
  batch.visit_fields(f);
  f.add(steps, {.flag = "--steps", .help = "Updates; default: one epoch", .least = 1});
  f.add(epochs,
        {.flag = "--epochs", .help = "Times through the data, instead of --steps", .above = 0});
  f.add(eval_every, {.flag = "--eval-every",
                     .help = "Steps between losses of --eval-data; 0: at the end only",
                     .least = 0,
                     .needs = "--eval-data"});
  f.section("Output");
  f.add(output, {.flag = "--output",
                 .help = "The trained model: .dat, .safetensors or a directory; default: in the "
                         "run's folder, of the input's kind",
                 .value = "PATH",
                 .aliases = {"--output-dat"}});
  f.add(force, {.flag = "--force", .help = "Replace an --output that exists (never the input)"});
  f.add(write_output, {.flag = "--export", .help = "Write the trained model; false: only train"});
  train.visit_fields(f);
  run.visit_fields(f);
  test.visit_fields(f);
}

TrainInputs open_train_inputs(const ModelOptions& model) {
  ModelPaths paths = resolve_model(model, TokenizerNeed::required);
  Config config = load_config(paths.config);
  Tokenizer tokenizer = Tokenizer::load(paths.tokenizer);
  check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
  auto source = open_tensor_source(paths.weights);
  return {std::move(paths), std::move(config), std::move(source), std::move(tokenizer)};
}

int64_t steps_of(const TrainJobOptions& o, int64_t samples) {
  if (o.steps && o.epochs) throw_usage("--steps and --epochs both say how long: give one");
  if (o.steps) return *o.steps;
  const double per_step = double(o.batch.batch_size * o.batch.accumulate);
  return std::max<int64_t>(1,
                           int64_t(std::ceil(o.epochs.value_or(1) * double(samples) / per_step)));
}

ExitCode run_train_job(const TrainJobOptions& o, TrainInputs in, DataUse use,
                       const std::string& command, Io& io) {
  log_info("{}", in.source->describe());
  const Dataset data =
      load_dataset(o.data.train_data, in.tokenizer, o.data.dataset(use, o.batch.seq_len));
  log_info("{}", data.summary());
  std::optional<Dataset> held_out;
  if (!o.data.eval_data.empty()) {
    held_out = load_dataset(o.data.eval_data, in.tokenizer, o.data.dataset(use, o.batch.seq_len));
  }

  const auto backend = make_backend(o.train.device, o.train.threads);
  DatasetBatches batches(data, o.data.sample_mode, o.train.seed, o.batch.batch_size);
  std::optional<DatasetBatches> eval_batches;
  PackBounds bounds = batches.bounds();
  if (held_out) {
    eval_batches.emplace(*held_out, SampleMode::sequential, 0, o.batch.batch_size);
    const PackBounds b = eval_batches->bounds();
    bounds = {std::max(bounds.tokens, b.tokens), std::max(bounds.outputs, b.outputs),
              std::max(bounds.sequences, b.sequences)};
  }
  TrainSettings settings = o.train.settings();
  settings.schedule.steps = steps_of(o, data.size());
  settings.max_tokens = bounds.tokens;
  settings.max_outputs = bounds.outputs;
  settings.max_sequences = bounds.sequences;
  const Config as_trained = training_config(in.config, *in.source, settings.untie);
  choose_memory(settings, o.train, *backend, as_trained, has_global_scales(*in.source),
                o.batch.accumulate);

  RunRecorder recorder(create_run_folder(o.run.folder, command), command, io.config,
                       settings.schedule.steps);
  const fs::path out = output_path(o, *in.source, recorder.directory());
  const Container container = container_for(out);
  const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
  OutputPlace place;
  if (o.write_output) {
    refuse_overwrite_of_input(*in.source, out);
    refuse_replacing_input(out, in.paths, {o.data.train_data, o.data.eval_data});
    place = check_output(out, container, overwrite);
  }
  if (!o.run.vram_report.empty()) recorder.also_report_memory_to(o.run.vram_report);
  recorder.phase("start", 0);

  SelfTestReference reference;
  {
    TrainState state(*backend, in.config, *in.source, settings);
    recorder.phase("model_loaded", 0);
    recorder.arenas(state.arenas());
    log_info("{}: {}, {} steps of {} x {} samples, window {}", backend->name(),
             state.groups().describe(), settings.schedule.steps, o.batch.accumulate,
             o.batch.batch_size, o.batch.seq_len);
    Trainer trainer(state);
    RunIdentity identity = run_identity(in.config, *in.source, settings);
    batches.add_identity(identity);
    identity["accumulate"] = fmt::format("{}", o.batch.accumulate);
    RunPlan plan;
    plan.steps = settings.schedule.steps;
    plan.accumulate = o.batch.accumulate;
    plan.eval_every = o.eval_every;
    TrainRun run(trainer, batches, plan, o.run, recorder, std::move(identity));
    run.resume();
    if (run.run(eval_batches ? &*eval_batches : nullptr) == RunEnd::interrupted) {
      recorder.finish(RunState::interrupted);
      io.out << fmt::format(
          "interrupted after step {} of {}; go on with the same command and --resume "
          "--checkpoint-dir {}\n",
          trainer.progress.step, plan.steps, run.checkpoint_directory().string());
      return ExitCode::ok;
    }
    if (o.write_output) {
      reference = reference_of(trainer, data);
      fs::create_directories(place.directory);
      ThreadPool pool(o.train.threads > 0 ? o.train.threads : default_thread_count());
      const ExportSummary done = export_weights(*in.source, state, in.config, out, pool);
      write_companions(in, out, container, !state.config().tied, overwrite);
      recorder.exported(out);
      io.out << fmt::format("{}: {} entries, {} payload bytes ({})\n", out.string(), done.entries,
                            done.payload_bytes, format_bytes(done.payload_bytes));
    }
  }
  ExitCode code = ExitCode::ok;
  if (o.write_output && o.test.enabled) {
    RuntimeOptions exported;
    exported.model.model = out;
    exported.device = o.train.device;
    exported.threads = o.train.threads;
    exported.compute = o.train.compute;
    exported.activations = ActivationsChoice::bf16;
    if (o.train.recipe == Recipe::nvfp4) exported.recipe = RecipeChoice::nvfp4;
    if (settings.head() != settings.recipe) {
      exported.head_recipe =
          settings.head() == Recipe::nvfp4 ? RecipeChoice::nvfp4 : RecipeChoice::bf16;
    }
    exported.scale_rule = o.train.rule;
    code = self_test(o.test, exported, reference, o.data.style, io.out);
  }
  recorder.finish(code == ExitCode::ok ? RunState::finished : RunState::failed);
  io.out << fmt::format("run folder {}\n", recorder.directory().string());
  return code;
}

}  // namespace nibble
