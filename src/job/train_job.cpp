// SPDX-License-Identifier: MIT
#include "job/train_job.h"
#include "job/memory_choice.h"
#include "job/slow_paths.h"

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

constexpr double kMostSteps = 1e15;

fs::path directory_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

struct Destination {
  fs::path path;
  Container container = Container::directory;
  Overwrite overwrite = Overwrite::refuse;
  fs::path directory;  // of the weights and their companions
};

// Asked before the training: what may not be written then is known then.
Destination destination(const TrainJobOptions& o, const TrainInputs& in, const fs::path& out) {
  Destination d;
  d.path = out;
  d.container = container_for(out);
  d.overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
  refuse_replacing_weights(*in.source, out, d.container);
  refuse_replacing_input(out, in.paths, {o.data.train_data, o.data.eval_data, o.gates.probes});
  d.directory = check_output(out, d.container, d.overwrite).directory;
  check_writable(d.directory);
  return d;
}

// Whether the file will be of 4 bits where the run computed with the master itself: then its loss
// is another one, and rightly so.
bool file_is_coarser(const TensorSource& source, const TrainSettings& s, Container container) {
  if (s.recipe == Recipe::nvfp4 && s.head() == Recipe::nvfp4) return false;
  if ((container == Container::dat) != (source.format() == "dat")) return false;
  const WeightIndex index(source);
  return std::ranges::any_of(index.tensors(), [](const LogicalTensor& t) { return t.packed(); });
}

// The first sample alone, as the file's own words for the self-test.
SelfTestReference reference_of(Trainer& trainer, const Dataset& data, bool comparable) {
  SelfTestReference r;
  const Sample first = data.sample(0);
  pack(r.batch, std::span(&first, 1));
  if (comparable) r.loss = trainer.evaluate(r.batch);
  const auto rows = std::span(r.batch.ids).first(size_t(r.batch.out_rows.front()) + 1);
  r.prompt_ids.assign(rows.begin(), rows.end());
  return r;
}

// config.json and the tokenizer's files beside the weights.
void write_companions(const TrainInputs& in, const Destination& d, bool untied) {
  std::string config = read_text_file(in.paths.config);
  const bool changed = untied && in.config.tied && d.container != Container::dat;
  if (changed) {
    auto json = nlohmann::ordered_json::parse(config);
    json["tie_word_embeddings"] = false;
    config = json.dump(2) + "\n";
  }
  const fs::path target = d.directory / "config.json";
  if (!same_file(target, in.paths.config)) {
    write_companion(config, target, d.overwrite);
  } else if (changed) {
    log_warning("{} is the input's and is kept: set tie_word_embeddings to false for the output",
                target.string());
  }
  // The tokenizer of this run, whatever its name; another one may lie beside config.json.
  const fs::path tokenizer = d.directory / "tokenizer.json";
  if (!same_file(in.paths.tokenizer, tokenizer)) {
    write_companion(read_text_file(in.paths.tokenizer), tokenizer, d.overwrite);
  }
  copy_companions(directory_of(in.paths.tokenizer), d.directory, d.overwrite, {"tokenizer.json"});
  const fs::path generation = directory_of(in.paths.config) / "generation_config.json";
  if (fs::is_regular_file(generation)) copy_companion(generation, d.directory, d.overwrite);
}

ExitCode test_export(const TrainJobOptions& o, const TrainSettings& settings, const Destination& d,
                     const SelfTestReference& reference, std::ostream& out) {
  RuntimeOptions exported;
  exported.model.model = d.path;
  exported.device = o.train.device;
  exported.threads = o.train.threads;
  exported.compute = o.train.compute;
  exported.activations = ActivationsChoice::bf16;
  if (settings.recipe == Recipe::nvfp4) exported.recipe = RecipeChoice::nvfp4;
  if (settings.head() != settings.recipe) {
    exported.head_recipe =
        settings.head() == Recipe::nvfp4 ? RecipeChoice::nvfp4 : RecipeChoice::bf16;
  }
  exported.scale_rule = settings.rule;
  return self_test(o.test, exported, reference, o.data.style, out);
}

constexpr double kGentler = 0.5;  // of the learning rate, after each collapse

// Runs until the end, rolling back as often as that is the answer. A collapse that is left to the
// caller to answer has been recorded, and `lr_factor` is that of the next attempt.
RunEnd run_with_gates(TrainRun& run, Trainer& trainer, BatchSource* held_out, Gates* gates,
                      double& lr_factor) {
  for (;;) {
    const RunEnd end = run.run(held_out);
    if (end != RunEnd::collapsed) return end;
    const int64_t step = trainer.progress.step;
    const std::optional<CheckpointFile> good = run.good_gate();
    OnCollapse action = gates->action();
    if (action == OnCollapse::rollback && !good) action = OnCollapse::restart;
    lr_factor = trainer.progress.lr_factor * kGentler;
    gates->record_collapse(step, run.collapse(), action, lr_factor);
    log_warning("step {}: collapse: {}", step, run.collapse());
    if (action == OnCollapse::rollback) {
      run.roll_back(*good, lr_factor);
      log_warning("back to step {} with {:g} of the learning rate", good->step, lr_factor);
      continue;
    }
    if (action == OnCollapse::restart) {
      log_warning("beginning again from the original with {:g} of the learning rate", lr_factor);
    }
    return end;
  }
}

ExitCode report_collapse(const TrainRun& run, const Gates& gates, const TrainInputs& in,
                         RunRecorder& recorder, int64_t step, std::ostream& out) {
  const std::string again =
      gates.attempt() > 0 ? fmt::format(" (after {} gentler attempts)", gates.attempt()) : "";
  const std::string what = fmt::format("collapse at step {}{}: {}", step, again, run.collapse());
  recorder.finish(RunState::failed, what);
  out << fmt::format("{}\nnothing was exported, {} is as it was\n{}run folder {}\n", what,
                     in.paths.weights.string(), gates.last_gate(), recorder.directory().string());
  return ExitCode::check_failed;
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
  f.add(force, {.flag = "--force",
                .help = "Replace an --output that exists (never the input)",
                .needs = "--output"});
  f.add(write_output, {.flag = "--export", .help = "Write the trained model; false: only train"});
  train.visit_fields(f);
  run.visit_fields(f);
  gates.visit_fields(f);
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

void TrainJobOptions::check() const {
  if (steps && epochs) throw_usage("--steps and --epochs both say how long: give one");
  if (!write_output && !output.empty()) {
    throw_usage("--output says where to write, and --export false that nothing is written");
  }
  if ((!write_output || !test.enabled) && !(test.prompt.empty() && test.expect.empty())) {
    throw_usage("--test-prompt and --test-expect belong to the self-test, which {} switches off",
                write_output ? "--self-test false" : "--export false");
  }
  run.check();
  gates.check(run.save_every);
  refuse_same_output({{"--output", output}, {"--vram-report", run.vram_report}});
  if (!output.empty()) {
    check_output(output, container_for(output), force ? Overwrite::allow : Overwrite::refuse);
  }
}

int64_t steps_of(const TrainJobOptions& o, int64_t samples) {
  if (o.steps) return *o.steps;
  const double per_step = double(o.batch.batch_size * o.batch.accumulate);
  const double steps = std::ceil(o.epochs.value_or(1) * double(samples) / per_step);
  if (steps > kMostSteps) throw_usage("--epochs {:g} would be {:.3g} steps", *o.epochs, steps);
  return std::max<int64_t>(1, int64_t(steps));
}

ExitCode run_train_job(const TrainJobOptions& o, TrainInputs in, DataUse use,
                       const std::string& command, Io& io) {
  o.check();
  refuse_replacing_input(o.run.vram_report, in.paths,
                         {o.data.train_data, o.data.eval_data, o.gates.probes});
  std::optional<Destination> target;
  if (!o.output.empty()) target = destination(o, in, o.output);
  log_info("{}", in.source->describe());
  const Dataset data =
      load_dataset(o.data.train_data, in.tokenizer, o.data.dataset(use, o.batch.seq_len));
  log_info("{}", data.summary());
  check_window(in.config, data.most_rows());
  std::optional<Dataset> held_out;
  if (!o.data.eval_data.empty()) {
    held_out = load_dataset(o.data.eval_data, in.tokenizer, o.data.dataset(use, o.batch.seq_len));
    check_window(in.config, held_out->most_rows());
  }

  const auto backend = make_backend(o.train.device, o.train.threads);
  std::optional<Gates> gates;
  if (o.gates.used()) gates.emplace(o.gates, in.tokenizer, o.data.style);
  DatasetBatches batches(data, o.data.sample_mode, o.train.seed, o.batch.batch_size);
  std::optional<DatasetBatches> eval_batches;
  PackBounds bounds = batches.bounds();
  if (held_out) {
    eval_batches.emplace(*held_out, SampleMode::sequential, 0, o.batch.batch_size,
                         EpochEnd::ends_batch);
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
  if (gates) settings.gate_bytes = gates->bytes(*backend, as_trained, settings);
  choose_memory(settings, o.train, *backend, as_trained, has_global_scales(*in.source),
                o.batch.accumulate);
  warn_of_slow_kernels(settings, *backend);

  RunRecorder recorder(create_run_folder(o.run.folder, command), command, io.config,
                       settings.schedule.steps, memory_source(*backend));
  if (o.write_output && !target) {
    target = destination(
        o, in, recorder.directory() / (in.source->format() == "dat" ? "model.dat" : "model"));
  }
  if (!o.run.vram_report.empty()) recorder.also_report_memory_to(o.run.vram_report);
  recorder.device(backend->name());
  for (const InputFile& f : in.source->files()) recorder.input("weights", f.path());
  recorder.input("config", in.paths.config);
  recorder.input("tokenizer", in.paths.tokenizer);
  recorder.input("train-data", o.data.train_data);
  recorder.input("eval-data", o.data.eval_data);
  recorder.input("probes", o.gates.probes);
  recorder.phase("start", 0);

  SelfTestReference reference;
  RunEnd end = RunEnd::collapsed;
  // Of the learning rate; a new attempt after a collapse begins with less.
  for (double lr_factor = 1; end == RunEnd::collapsed;) {
    TrainState state(*backend, in.config, *in.source, settings, as_trained);
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
    if (gates) run.set_gates(&*gates);
    if (lr_factor == 1) {
      run.resume();
    } else {
      run.begin_again(lr_factor);
    }
    if (trainer.progress.step > plan.steps) {
      throw_usage("the checkpoint is at step {}, beyond the {} steps of this run: raise --steps",
                  trainer.progress.step, plan.steps);
    }
    if (gates) gates->begin(state, trainer.progress.step, recorder.directory());
    end = run_with_gates(run, trainer, eval_batches ? &*eval_batches : nullptr,
                         gates ? &*gates : nullptr, lr_factor);
    if (end == RunEnd::interrupted) {
      recorder.finish(RunState::interrupted);
      io.out << fmt::format(
          "interrupted after step {} of {}; go on with the same command and --resume "
          "--checkpoint-dir {}\n",
          trainer.progress.step, plan.steps, run.checkpoint_directory().string());
      return ExitCode::ok;
    }
    if (gates) gates->end();
    if (end == RunEnd::collapsed) {
      if (gates->action() == OnCollapse::stop) {
        return report_collapse(run, *gates, in, recorder, trainer.progress.step, io.out);
      }
      gates->next_attempt("");
      continue;
    }
    recorder.arenas(state.arenas());  // their peaks, now that they are known
    if (end == RunEnd::passed) {
      io.out << fmt::format("every probe score is reached at step {} of {}\n",
                            trainer.progress.step, plan.steps);
    }
    if (target) {
      reference = reference_of(trainer, data,
                               settings.loss == LossKind::ce &&
                                   !file_is_coarser(*in.source, settings, target->container));
      fs::create_directories(target->directory);
      ThreadPool pool(o.train.threads > 0 ? o.train.threads : default_thread_count());
      const ExportSummary done = export_weights(*in.source, state, in.config, target->path, pool);
      if (target->container == Container::directory) remove_stale_weights(target->path);
      write_companions(in, *target, !state.config().tied);
      recorder.exported(target->path);
      io.out << fmt::format("{}: {} entries, {} payload bytes ({})\n", target->path.string(),
                            done.entries, done.payload_bytes, format_bytes(done.payload_bytes));
    }
  }
  ExitCode code = ExitCode::ok;
  std::vector<std::string> wrong;  // for the record; the output has said it
  if (target && o.test.enabled) code = test_export(o, settings, *target, reference, io.out);
  if (code != ExitCode::ok) wrong.push_back("the self-test of the exported model failed");
  if (gates) {
    io.out << gates->table();
    for (const std::string& low : gates->low()) {
      wrong.push_back("probes: too low, " + low);
      io.out << wrong.back() << "\n";
    }
    if (!gates->low().empty()) code = ExitCode::check_failed;
  }
  recorder.finish(code == ExitCode::ok ? RunState::finished : RunState::failed,
                  fmt::format("{}", fmt::join(wrong, "; ")), code);
  io.out << fmt::format("run folder {}\n", recorder.directory().string());
  return code;
}

}  // namespace nibble
