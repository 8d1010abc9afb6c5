// SPDX-License-Identifier: MIT
#include "job/train_session.h"

#include "core/log.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

constexpr double kGentler = 0.5;  // of the learning rate, after each collapse

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

}  // namespace

void TrainSession::start(TrainRun& run, Trainer& trainer, double lr_factor) {
  if (gates) run.set_gates(gates);
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
  if (!gates) return;
  gates->begin(trainer.state(), step, recorder.directory());
  if (const ProbeScores* scores = gates->scores_at(step)) events.gate_done(step, *scores);
}

RunEnd TrainSession::attempt(double& lr_factor) {
  TrainState state(backend, in.config, *in.source, settings, as_trained,
                   teacher ? teacher->source.get() : nullptr);
  recorder.phase("model_loaded", 0);
  recorder.arenas(state.arenas().all());
  log_info("{}: {}, {} steps of {} x {} samples, window {}", backend.name(),
           state.groups().describe(), settings.schedule.steps, job.batch.accumulate,
           job.batch.batch_size, job.batch.seq_len);
  Trainer trainer(state);
  RunIdentity identity = run_identity(in.config, *in.source, settings);
  batches.train->add_identity(identity);
  if (settings.keep.used()) identity["teacher"] = teacher_identity(teacher);
  identity["accumulate"] = fmt::format("{}", job.batch.accumulate);
  const RunPlan plan{settings.schedule.steps, job.batch.accumulate, job.eval_every};
  TrainRun run(trainer, *batches.train, plan, job.run, recorder, std::move(identity), events);
  start(run, trainer, lr_factor);
  const RunEnd end = run_with_gates(run, trainer, batches.held_out ? &*batches.held_out : nullptr,
                                    gates, lr_factor);
  result.steps = trainer.progress.step;
  if (gates) gates->end();
  if (end == RunEnd::interrupted) {
    interrupted(run);
  } else if (end == RunEnd::collapsed) {
    if (gates->action() == OnCollapse::stop) collapsed(run);
  } else {
    recorder.arenas(state.arenas().all());  // their peaks, now that they are known
    if (end == RunEnd::passed) {
      events.text(
          fmt::format("every probe score is reached at step {} of {}\n", result.steps, plan.steps));
    }
    if (target) export_trained(trainer);
  }
  return end;
}

void TrainSession::interrupted(const TrainRun& run) {
  result.end = JobEnd::interrupted;
  recorder.finish(RunState::interrupted);
  events.text(
      fmt::format("interrupted after step {} of {}; go on with the same command and --resume "
                  "--checkpoint-dir {}\n",
                  result.steps, settings.schedule.steps, run.checkpoint_directory().string()));
}

void TrainSession::collapsed(const TrainRun& run) {
  const std::string again =
      gates->attempt() > 0 ? fmt::format(" (after {} gentler attempts)", gates->attempt()) : "";
  const std::string what =
      fmt::format("collapse at step {}{}: {}", result.steps, again, run.collapse());
  result.end = JobEnd::collapsed;
  result.problems.push_back(what);
  recorder.finish(RunState::failed, what);
  events.text(fmt::format("{}\nnothing was exported, {} is as it was\n{}run folder {}\n", what,
                          in.paths.weights.string(), gates->last_gate(),
                          recorder.directory().string()));
}

void TrainSession::export_trained(Trainer& trainer) {
  const bool comparable =
      settings.loss == LossKind::ce && !file_is_coarser(*in.source, settings, target->container);
  reference = reference_of(trainer, samples.first(), comparable);
  const ExportSummary done = export_model(in, trainer.state(), *target, job.train.threads);
  result.output = target->path;
  recorder.exported(target->path);
  events.model_exported(target->path);
  events.text(fmt::format("{}: {} entries, {} payload bytes ({})\n", target->path.string(),
                          done.entries, done.payload_bytes, format_bytes(done.payload_bytes)));
}

}  // namespace nibble
