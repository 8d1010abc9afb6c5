// SPDX-License-Identifier: MIT
// nibble profile: one training step, phase by phase: time, memory, bytes per arena.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ostream>

#include "apps/command.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/thread_pool.h"
#include "job/memory_choice.h"
#include "job/slow_paths.h"
#include "job/train_choices.h"
#include "job/train_run.h"
#include "measure/bench_random.h"
#include "measure/train_work.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

enum class Phase {
  none,
  start,
  model_loaded,
  state_initialized,
  batch_ready,
  zero_grad_done,
  backward_done,
  optimizer_step_done,
  cleanup_done
};
const std::vector<std::pair<std::string, Phase>> kPhases = {
    {"none", Phase::none},
    {"start", Phase::start},
    {"model_loaded", Phase::model_loaded},
    {"state_initialized", Phase::state_initialized},
    {"batch_ready", Phase::batch_ready},
    {"zero_grad_done", Phase::zero_grad_done},
    {"backward_done", Phase::backward_done},
    {"optimizer_step_done", Phase::optimizer_step_done},
    {"cleanup_done", Phase::cleanup_done}};

struct ProfileOptions {
  ModelOptions model;
  bool random_weights = false;
  fs::path train_data;
  int64_t sample_index = 0;
  BatchFlags batch;
  TrainFlags train;
  Phase stop_after = Phase::none;
  int64_t warmup = 0, repeat = 0;
  fs::path vram_report;

  void visit_fields(Fields& f) {
    model.visit_fields(f);
    f.add(random_weights, {.flag = "--random-weights",
                           .help = "Profile a model of the shape of --config with random weights, "
                                   "made in memory; no file is read",
                           .needs = "--config"});
    f.section("Batch");
    f.add(train_data, {.flag = "--train-data",
                       .help = "A sample of this file (.tsv, .jsonl); default: random tokens",
                       .value = "FILE"});
    f.add(sample_index, {.flag = "--sample-index",
                         .help = "Which sample; counts on from the start after the last",
                         .least = 0,
                         .needs = "--train-data"});
    batch.visit_fields(f);
    train.visit_fields(f);
    f.section("Profile");
    f.add_choice(stop_after, {.flag = "--stop-after", .help = "End after this phase"}, kPhases);
    f.add(warmup, {.flag = "--warmup",
                   .help = "Steps before the one that is measured",
                   .least = 0,
                   .most = 1000});
    f.add(repeat, {.flag = "--repeat",
                   .help = "Steps after it, for the median time of a step",
                   .least = 0,
                   .most = 100000});
    f.add(vram_report, {.flag = "--vram-report",
                        .help = "Write the memory of each phase as JSON",
                        .value = "FILE"});
  }
};

struct StopHere {};

// Prints a line per phase and collects the report.
class PhaseTable {
 public:
  PhaseTable(const ProfileOptions& o, std::ostream& out) : o_(o), out_(out) {
    out_ << fmt::format("{:<22}{:>12}{:>14}\n", "phase", "ms", "resident");
  }
  void quiet(bool quiet) { quiet_ = quiet; }
  void reached(const std::string& name) {
    line(name);
    if (quiet_) return;
    report_.sample(name, 0, 0, 0);
    for (const auto& [text, phase] : kPhases) {
      if (text == name && phase == o_.stop_after) throw StopHere();
    }
  }
  // A part of a phase: a line, but no phase of the report.
  void line(const std::string& name) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    if (quiet_) return;
    out_ << fmt::format("{:<22}{:>12.2f}{:>14}\n", name, ms,
                        format_bytes(process_resident_bytes()));
  }
  MemoryReport& report() { return report_; }

 private:
  const ProfileOptions& o_;
  std::ostream& out_;
  MemoryReport report_;
  bool quiet_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Median and spread of whole steps, whether they stayed finite, and the share of the machine each
// part gets.
void print_repeated(const ProfileOptions& o, Trainer& trainer, std::span<const PackedBatch> micro,
                    int64_t tokens, std::ostream& out) {
  std::vector<double> ms, losses;
  int64_t bad = 0;
  trainer.phase = trainer.part = {};
  for (int64_t i = 0; i < o.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const StepResult r = trainer.step(micro);
    trainer.state().backend().sync();
    const auto end = std::chrono::steady_clock::now();
    ms.push_back(std::chrono::duration<double, std::milli>(end - start).count());
    losses.push_back(r.loss);
    bad += r.skipped || r.bad_tensors > 0 || !std::isfinite(r.loss);
  }
  std::ranges::sort(ms);
  const double median = ms[ms.size() / 2];
  double flops = 0;
  for (const PackedBatch& b : micro) flops += total_flops(work_of_step(trainer.state(), b));
  out << fmt::format(
      "{} steps: median {:.2f} ms (p10 {:.2f}, p90 {:.2f}), {:.0f} tokens/s, {:.1f} GFLOP/s\n",
      o.repeat, median, ms[ms.size() / 10], ms[ms.size() * 9 / 10], double(tokens) / median * 1e3,
      flops / median * 1e-6);
  out << fmt::format("loss {:.4f} -> {:.4f}, {} of {} steps not finite\n", losses.front(),
                     losses.back(), bad, o.repeat);
  if (micro.size() != 1) return;  // parts of several batches alternate
  const int threads = o.train.threads > 0 ? o.train.threads : default_thread_count();
  constexpr size_t kBuffer = size_t(256) << 20;
  print_parts(trainer, micro.front(), std::min<int64_t>(o.repeat, 10),
              measure_ceilings(trainer.state().backend(), threads, kBuffer), out);
}

ModelPaths paths_of(const ProfileOptions& o) {
  if (!o.random_weights) {
    return resolve_model(o.model,
                         o.train_data.empty() ? TokenizerNeed::optional : TokenizerNeed::required);
  }
  if (o.model.named()) throw_usage("--random-weights takes no --model: nothing is read");
  if (!o.train_data.empty()) throw_usage("--random-weights has no tokenizer for --train-data");
  ModelPaths paths;
  paths.config = o.model.config;
  return paths;
}

void profile(const ProfileOptions& o, const ModelPaths& paths, PhaseTable& phases,
             std::ostream& out) {
  phases.reached("start");
  const Config config = load_config(paths.config);
  const auto source =
      o.random_weights
          ? make_random_source(config, o.train.seed, default_thread_count(), TiedHead::left_out)
          : open_tensor_source(paths.weights);
  const auto backend = make_backend(o.train.device, o.train.threads);
  std::vector<PackedBatch> micro(static_cast<size_t>(o.batch.accumulate));
  if (o.train_data.empty()) {
    RandomBatches random(config.V, o.batch.seq_len, o.batch.batch_size, o.train.seed);
    uint64_t position = 0;
    for (PackedBatch& b : micro) position = random.next(b, position);
  } else {
    const Tokenizer tokenizer = Tokenizer::load(paths.tokenizer);
    check_tokenizer_fits(tokenizer, config, paths.tokenizer.string());
    DataFlags flags;
    flags.truncate = true;
    const Dataset data =
        load_dataset(o.train_data, tokenizer, flags.dataset(DataUse::fine_tune, o.batch.seq_len));
    SampleOrder order(SampleMode::sequential, data.size(), 0);
    uint64_t position = uint64_t(o.sample_index);
    for (PackedBatch& b : micro) {
      position = pack_next(b, data, order, position, {o.batch.batch_size, 0});
    }
  }
  TrainSettings s = o.train.settings();
  for (const PackedBatch& b : micro) {
    for (const Sequence& q : b.sequences) check_window(config, q.q_len);
    s.max_tokens = std::max(s.max_tokens, b.tokens());
    s.max_outputs = std::max(s.max_outputs, b.outputs());
    s.max_sequences = std::max(s.max_sequences, int64_t(b.sequences.size()));
  }
  s.schedule.steps = o.warmup + 1 + o.repeat;
  const Config as_trained = training_config(config, *source, s.untie);
  choose_memory(s, o.train, *backend, as_trained, has_global_scales(*source), o.batch.accumulate);
  warn_of_slow_kernels(s, *backend);
  TrainState state(*backend, config, *source, s, as_trained);
  phases.report().set_source(memory_source(*backend));
  phases.report().set_arenas(state.arenas());
  phases.reached("model_loaded");
  Trainer trainer(state);
  phases.reached("state_initialized");
  phases.quiet(true);
  for (int64_t i = 0; i < o.warmup; ++i) trainer.step(micro);
  backend->sync();
  phases.reached("");
  phases.quiet(false);
  phases.reached("batch_ready");
  phases.reached("zero_grad_done");  // gradients are overwritten, never cleared
  trainer.phase = [&](const char* name) {
    backend->sync();
    phases.reached(name);
  };
  trainer.part = [&](const char* name) {
    backend->sync();
    phases.line(name);
  };
  const auto start = std::chrono::steady_clock::now();
  const StepResult r = trainer.step(micro);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  phases.report().set_arenas(state.arenas());  // with their peaks
  for (Arena* a : state.arenas().all()) {
    out << fmt::format("{:<22}{:>12}{:>14}\n", a->name(), "", format_bytes(a->capacity()));
  }
  out << fmt::format("loss={:.6f} grad_l2={:.6g} tokens={} scored={} elapsed={:.1f}ms\n", r.loss,
                     r.grad_norm, r.tokens, r.scored, ms);
  if (r.skipped) out << fmt::format("skipped: {}\n", r.problem);
  if (!backend->memory_is_host()) {
    out << fmt::format("device memory: peak {}\n",
                       format_bytes(backend->device_memory().peak_bytes));
  }
  if (o.repeat > 0) print_repeated(o, trainer, micro, r.tokens, out);
}

ExitCode run_profile(const ProfileOptions& o, Io& io) {
  // Before anything that is reported: a report is written when the rest fails, too.
  const ModelPaths paths = paths_of(o);
  refuse_replacing_input(o.vram_report, paths, {o.train_data});
  PhaseTable phases(o, io.out);
  const auto write = [&] {
    if (!o.vram_report.empty()) phases.report().write(o.vram_report);
  };
  try {
    profile(o, paths, phases, io.out);
    phases.reached("cleanup_done");
  } catch (const StopHere&) {
    for (const auto& [text, phase] : kPhases) {
      if (phase == o.stop_after) io.out << fmt::format("stopped after {}\n", text);
    }
  } catch (...) {
    write();
    throw;
  }
  write();
  return ExitCode::ok;
}

}  // namespace

Command profile_command() {
  return make_command<ProfileOptions>(
      "profile", "Run one training step, phase by phase: time, memory, bytes per arena",
      "The step is a real one; nothing is written but the report.", run_profile);
}

}  // namespace nibble
