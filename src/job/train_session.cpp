// SPDX-License-Identifier: MIT
#include "job/train_session.h"

#include <new>

#include "core/command_line.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "job/disk_space.h"
#include "job/export_model.h"

namespace nibble {
namespace {

constexpr double kGentler = 0.5;  // of the learning rate, after each collapse

// The first sample alone, as the file's own words for the self-test.
SelfTestReference reference_of(const Dataset& data) {
  SelfTestReference r;
  const Sample first = data.sample(0);
  pack(r.batch, std::span(&first, 1));
  const auto rows = std::span(r.batch.ids).first(size_t(r.batch.out_rows.front()) + 1);
  r.prompt_ids.assign(rows.begin(), rows.end());
  return r;
}

// Runs until the end, rolling back as often as that is the answer. A collapse that is left to the
// caller to answer has been recorded, and `lr_factor` is that of the next attempt.
RunEnd run_with_gates(TrainRun& run, Trainer& trainer, BatchSource* held_out, Gates& gates,
                      double& lr_factor) {
  for (;;) {
    const RunEnd end = run.run(held_out);
    if (end != RunEnd::collapsed) return end;
    const int64_t step = trainer.progress.step;
    const std::optional<CheckpointFile> good = run.good_gate();
    OnCollapse action = gates.action();
    if (action == OnCollapse::rollback && !good) action = OnCollapse::restart;
    lr_factor = trainer.progress.lr_factor * kGentler;
    gates.record_collapse(step, run.collapse(), action, lr_factor);
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

// Signals wait while it lives.
class ExportScope {
 public:
  explicit ExportScope(JobEvents& events) : events_(events) { events_.export_begin(); }
  ~ExportScope() { events_.export_end(); }
  ExportScope(const ExportScope&) = delete;
  ExportScope& operator=(const ExportScope&) = delete;

 private:
  JobEvents& events_;
};

}  // namespace

void TrainSession::start(TrainRun& run, Trainer& trainer, double lr_factor) {
  run.set_gates(&gates);
  if (lr_factor == 1) {
    run.resume();
  } else {
    run.begin_again(lr_factor);
  }
  const int64_t step = trainer.progress.step;
  if (step > settings.schedule.steps) {
    throw_usage("the checkpoint is at step {}, beyond the {} steps of this run: raise --steps",
                step, settings.schedule.steps);
  }
  check_disk(run);
  gates.begin(trainer.state(), step, recorder.directory());
  if (const ProbeScores* scores = gates.scores_at(step)) events.gate_done(step, *scores);
}

RunEnd TrainSession::attempt(double& lr_factor) {
  if (leader) leader->begin();
  TrainState state(backend, in.config, *in.source, settings, as_trained,
                   teacher ? teacher->source.get() : nullptr);
  recorder.phase("model_loaded", 0);
  recorder.arenas(state.arenas().all());
  log_info("{}: {}, {} steps of {} x {} samples, window {}", backend.name(),
           state.groups().describe(), settings.schedule.steps, job.batch.accumulate,
           job.batch.batch_size, job.batch.seq_len);
  // Gone before the state is.
  const struct Attached {
    RankLeader* leader;
    Attached(RankLeader* l, TrainState& s) : leader(l) {
      if (leader) leader->attach(s);
    }
    ~Attached() {
      if (leader) leader->detach();
    }
  } attached(leader, state);
  Trainer trainer(state, leader ? leader->exchange() : nullptr);
  RunIdentity identity = run_identity(in.config, settings);
  batches.train->add_identity(identity);
  // A file's hash comes when it is known.
  if (settings.keep.used()) identity[kTeacherKey] = teacher ? "" : "its own start";
  identity["accumulate"] = fmt::format("{}", job.batch.accumulate);
  const auto absolute = [](const std::filesystem::path& p) {
    return p.empty() ? p : std::filesystem::absolute(p).lexically_normal();
  };
  const RunPlan plan{settings.schedule.steps,
                     job.batch.accumulate,
                     job.eval_every,
                     {absolute(in.paths.weights), absolute(in.paths.config),
                      absolute(in.paths.tokenizer), as_trained.tied}};
  TrainRun run(trainer, *batches.train, plan, job.run, recorder, std::move(identity), events);
  run.set_leader(leader);
  start(run, trainer, lr_factor);
  const RunEnd end = run_with_gates(run, trainer, batches.held_out ? &*batches.held_out : nullptr,
                                    gates, lr_factor);
  result.steps = trainer.progress.step;
  gates.end();
  if (end == RunEnd::interrupted) {
    interrupted(run);
  } else if (end == RunEnd::collapsed) {
    if (gates.action() == OnCollapse::stop) collapsed(run.collapse());
  } else if (!target || sound(trainer)) {
    recorder.arenas(state.arenas().all());  // their peaks, now that they are known
    if (end == RunEnd::passed) {
      events.text(
          fmt::format("every probe score is reached at step {} of {}\n", result.steps, plan.steps));
    }
    if (target) export_trained(run, trainer);
  }
  return end;
}

void TrainSession::interrupted(const TrainRun& run) {
  result.end = JobEnd::interrupted;
  recorder.finish(RunState::interrupted);
  events.text(fmt::format("interrupted after step {} of {}; go on with {}\n", result.steps,
                          settings.schedule.steps, how_to_go_on(run)));
}

std::string TrainSession::how_to_go_on(const TrainRun& run) const {
  std::string flags;
  if (!job.run.resume) flags += " --resume";
  if (job.run.checkpoint_dir.empty()) {
    flags += " --checkpoint-dir " + shell_quoted(run.checkpoint_directory().string());
  }
  if (job.goes_on_by_itself) flags.clear();
  if (!job.command.empty()) return job.command + flags;
  return "the same command" + (flags.empty() ? "" : " and" + flags);
}

// Before the first step, when nothing is lost yet.
void TrainSession::check_disk(const TrainRun& run) const {
  constexpr uint64_t kRecords = 16 << 20, kRecordsOfAStep = 512;
  const auto steps_left = uint64_t(settings.schedule.steps - run.position().trainer.step);
  std::vector<SpaceNeed> needs = {
      {"checkpoints", run.checkpoint_directory(), run.bytes_to_come(target != nullptr)},
      {"the record of the run", recorder.directory(), kRecords + kRecordsOfAStep * steps_left}};
  if (target)
    needs.push_back({"the trained model", target->path, export_bytes(in, settings, *target)});
  check_space(needs);
}

void TrainSession::remove_own_checkpoints() {
  if (checkpoints.empty()) return;
  std::error_code ec;
  remove_checkpoints_after(checkpoints / "good", -1);
  remove_checkpoints_after(checkpoints, -1);
  std::filesystem::remove(checkpoints / "good", ec);
  std::filesystem::remove(checkpoints, ec);  // unless something else lies there
  recorder.checkpoints_removed();
}

void TrainSession::collapsed(const std::string& why) {
  const std::string again =
      gates.attempt() > 0 ? fmt::format(" (after {} gentler attempts)", gates.attempt()) : "";
  const std::string what = fmt::format("collapse at step {}{}: {}", result.steps, again, why);
  result.end = JobEnd::collapsed;
  result.problems.push_back(what);
  recorder.finish(RunState::collapsed, what);
  std::string advice;
  if (gates.settings().on_collapse == OnCollapse::automatic) {
    const auto& o = settings.optimizer;
    advice = fmt::format(
        "what usually helps: a lower rate than --lr {:g}{}{}; --on-collapse rollback or restart "
        "halves it by itself, --on-collapse ignore goes on regardless\n",
        settings.schedule.lr, settings.schedule.warmup == 0 ? ", --warmup-steps 20" : "",
        o.grad_clip == 0 ? ", --grad-clip 1" : "");
  }
  events.text(fmt::format("{}\nnothing was exported, {} is as it was\n{}{}run folder {}\n", what,
                          in.paths.weights.string(), advice, gates.last_gate(),
                          recorder.directory().string()));
}

// The last update has not been seen by any step's loss.
bool TrainSession::sound(Trainer& trainer) {
  reference = reference_of(samples.first());
  if (settings.loss != LossKind::ce) return true;
  const double loss = trainer.evaluate(reference.batch);
  if (!file_is_coarser(*in.source, settings, target->container)) reference.loss = loss;
  const GateVerdict verdict = gates.after_training(result.steps, loss);
  if (verdict.kind != GateVerdict::Kind::collapsed) return true;
  gates.record_collapse(result.steps, verdict.reason, OnCollapse::stop, std::nullopt);
  log_warning("step {}: collapse: {}", result.steps, verdict.reason);
  collapsed(verdict.reason);
  return false;
}

void TrainSession::export_trained(TrainRun& run, Trainer& trainer) {
  run.save_before_export();
  if (!job.run.asked_for_checkpoints()) checkpoints = run.checkpoint_directory();
  const ExportScope held(events);
  const ExportSummary done = [&] {
    const auto failed = [&](ExitCode code, const std::string& why) {
      return Error(code, fmt::format("the export failed: {}\nWhat was learned is not lost, it is "
                                     "in {}. When the cause is gone, go on with\n  {}",
                                     why, run.checkpoint_directory().string(), how_to_go_on(run)));
    };
    try {
      return export_model(
          in, trainer.state(), *target, job.train.threads,
          trained_origin(recorder, name_of_output(target->path),
                         model_name(in.paths.weights, in.paths.config), trainer.progress.step));
    } catch (const Error& e) {
      throw failed(e.code(), e.what());
    } catch (const std::filesystem::filesystem_error& e) {
      throw failed(ExitCode::file, e.what());
    } catch (const std::bad_alloc&) {
      throw failed(ExitCode::device, "out of memory");
    }
  }();
  result.output = target->path;
  recorder.exported(target->path);
  events.model_exported(target->path);
  events.text(fmt::format("{}: {} entries, {} payload bytes ({})\n", target->path.string(),
                          done.entries, done.payload_bytes, format_bytes(done.payload_bytes)));
}

}  // namespace nibble
