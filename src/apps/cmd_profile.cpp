// SPDX-License-Identifier: MIT
// nibble profile: one training step, phase by phase: time, memory, bytes per arena.
#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

#include "apps/command.h"
#include "apps/options/model_options.h"
#include "apps/options/train_options.h"
#include "core/memory_info.h"
#include "core/thread_pool.h"
#include "job/profile_job.h"
#include "measure/train_work.h"
#include "runlog/memory_report.h"
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
  ProfileJob job;
  Phase stop_after = Phase::none;
  fs::path vram_report;
  bool force = false;

  void visit_fields(Fields& f) {
    nibble::visit_fields(job.model, f);
    f.add(job.random_weights,
          {.flag = "--random-weights",
           .help = "Profile a model of the shape of --config with random weights, "
                   "made in memory; no file is read",
           .needs = "--config"});
    f.section("Batch");
    f.add(job.train_data,
          {.flag = "--train-data",
           .help = "A sample of this file (.tsv, .jsonl; .txt: plain text, a sample "
                   "a line); default: random tokens",
           .value = "FILE"});
    f.add(job.sample_index, {.flag = "--sample-index",
                             .help = "Which sample; counts on from the start after the last",
                             .least = 0,
                             .needs = "--train-data"});
    nibble::visit_fields(job.batch, f);
    nibble::visit_fields(job.train, f);
    f.section("Profile");
    f.add_choice(stop_after, {.flag = "--stop-after", .help = "End after this phase"}, kPhases);
    f.add(job.warmup, {.flag = "--warmup",
                       .help = "Steps before the one that is measured",
                       .least = 0,
                       .most = 1000});
    f.add(job.repeat, {.flag = "--repeat",
                       .help = "Steps after it, for the median time of a step",
                       .least = 0,
                       .most = 100000});
    f.add(vram_report, {.flag = "--vram-report",
                        .help = "Write the memory of each phase as JSON",
                        .value = "FILE"});
    f.add(force, {.flag = "--force",
                  .help = "Replace a --vram-report that exists",
                  .needs = "--vram-report"});
  }
};

struct StopHere {};

// Prints a line per phase and collects the report.
class PhaseTable final : public ProfileWatch {
 public:
  PhaseTable(const ProfileOptions& o, std::ostream& out) : o_(o), out_(out) {
    out_ << fmt::format("{:<22}{:>12}{:>14}\n", "phase", "ms", "resident");
  }
  void reached(const std::string& name) override {
    part(name);
    report_.sample(name, 0, 0, 0);
    for (const auto& [text, phase] : kPhases) {
      if (text == name && phase == o_.stop_after) throw StopHere();
    }
  }
  // A line, but no phase of the report.
  void part(const std::string& name) override {
    const double ms = ms_since_last();
    if (quiet_) return;
    out_ << fmt::format("{:<22}{:>12.2f}{:>14}\n", name, ms,
                        format_bytes(process_resident_bytes()));
  }
  void warming_up(bool on) override {
    quiet_ = on;
    ms_since_last();
  }
  void loaded(TrainState& state) override {
    report_.set_source(memory_source(state.backend()));
    report_.set_arenas(state.arenas().all());
  }
  void stepped(TrainState& state, const StepResult& r, double ms) override;
  void repeated(Trainer& trainer, std::span<const PackedBatch> micro,
                const RepeatedSteps& steps) override;
  const MemoryReport& report() const { return report_; }

 private:
  double ms_since_last() {
    const auto before = std::exchange(last_, std::chrono::steady_clock::now());
    return std::chrono::duration<double, std::milli>(last_ - before).count();
  }

  const ProfileOptions& o_;
  std::ostream& out_;
  MemoryReport report_;
  bool quiet_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  int64_t tokens_ = 0;  // of the step
};

void PhaseTable::stepped(TrainState& state, const StepResult& r, double ms) {
  tokens_ = r.tokens;
  report_.set_arenas(state.arenas().all());  // with their peaks
  for (Arena* a : state.arenas().all()) {
    out_ << fmt::format("{:<22}{:>12}{:>14}\n", a->name(), "", format_bytes(a->capacity()));
  }
  out_ << fmt::format("loss={:.6f} grad_l2={:.6g} tokens={} scored={} elapsed={:.1f}ms\n", r.loss,
                      r.grad_norm, r.tokens, r.scored, ms);
  if (r.skipped) out_ << fmt::format("skipped: {}\n", r.problem);
  if (!state.backend().memory_is_host()) {
    out_ << fmt::format("device memory: peak {}\n",
                        format_bytes(state.backend().device_memory().peak_bytes));
  }
}

// Median and spread of whole steps, whether they stayed finite, and the share of the machine each
// part gets.
void PhaseTable::repeated(Trainer& trainer, std::span<const PackedBatch> micro,
                          const RepeatedSteps& steps) {
  std::vector<double> ms = steps.ms;
  std::ranges::sort(ms);
  const double median = ms[ms.size() / 2];
  double flops = 0;
  for (const PackedBatch& b : micro) flops += total_flops(work_of_step(trainer.state(), b));
  out_ << fmt::format(
      "{} steps: median {:.2f} ms (p10 {:.2f}, p90 {:.2f}), {:.0f} tokens/s, {:.1f} GFLOP/s\n",
      ms.size(), median, ms[ms.size() / 10], ms[ms.size() * 9 / 10], double(tokens_) / median * 1e3,
      flops / median * 1e-6);
  out_ << fmt::format("loss {:.4f} -> {:.4f}, {} of {} steps not finite\n", steps.losses.front(),
                      steps.losses.back(), steps.not_finite, ms.size());
  if (micro.size() != 1) return;  // parts of several batches alternate
  const int32_t wanted = o_.job.train.threads;
  const int threads = wanted > 0 ? wanted : default_thread_count();
  constexpr size_t kBuffer = size_t(256) << 20;
  print_parts(trainer, micro.front(), std::min<int64_t>(o_.job.repeat, 10),
              measure_ceilings(trainer.state().backend(), threads, kBuffer), out_);
}

ExitCode run_profile(const ProfileOptions& o, Io& io) {
  // Before anything that is reported: a report is written when the rest fails, too.
  const ModelPaths paths = o.job.paths();
  check_output_file(o.vram_report, o.force ? Overwrite::allow : Overwrite::refuse, paths,
                    {o.job.train_data});
  PhaseTable phases(o, io.out);
  const auto write = [&] {
    if (!o.vram_report.empty()) phases.report().write(o.vram_report);
  };
  try {
    run_profile_job(o.job, paths, phases);
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
