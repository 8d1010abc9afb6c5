// SPDX-License-Identifier: MIT
#include "job/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/durable/directories.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/utc_time.h"
#include "runlog/earlier_run.h"
#include "runtime/output_files.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kSmoothedOver = 20;  // steps, about
constexpr int64_t kLogEvery = 10;

// By group, and of all, for the curves.
std::vector<std::pair<std::string, double>> percents_of(const ProbeScores& scores) {
  std::vector<std::pair<std::string, double>> out = {{"all", scores.all.percent()}};
  for (const GroupScore& g : scores.groups) out.emplace_back(g.name, g.all.percent());
  return out;
}

double seconds_between(std::chrono::steady_clock::time_point a,
                       std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

// The parts of the loss, where there are two kinds of rows.
std::string kept_text(const StepResult& r) {
  if (!r.kept_loss) return "";
  const std::string kept = fmt::format("kept {:.5f}", *r.kept_loss);
  return r.taught_loss ? fmt::format("  taught {:.4f}  {}", *r.taught_loss, kept) : "  " + kept;
}

// A stop may be requested while it lives.
class StepsScope {
 public:
  explicit StepsScope(JobEvents& events) : events_(events) { events_.steps_begin(); }
  ~StepsScope() { events_.steps_end(); }
  StepsScope(const StepsScope&) = delete;
  StepsScope& operator=(const StepsScope&) = delete;

 private:
  JobEvents& events_;
};

}  // namespace

void RunSettings::check() const {
  if (resume && checkpoint_dir.empty()) {
    throw_usage("--resume needs --checkpoint-dir: where the checkpoints of the run are");
  }
}

std::optional<FileLock> lock_checkpoints(const RunSettings& settings) {
  const fs::path& directory = settings.checkpoint_dir;
  if (directory.empty()) return std::nullopt;
  std::optional<FileLock> lock;
  try {
    make_directories(directory);
    lock = FileLock::take(lock_in(directory));
  } catch (const FormatError& e) {
    throw_format("checkpoints cannot be kept in {}: {}", directory.string(), e.what());
  }
  if (!lock) {
    throw_usage("{} has the checkpoints of a run that goes on ({}): name another --checkpoint-dir",
                directory.string(), lock_holder(lock_in(directory)));
  }
  return lock;
}

TrainRun::TrainRun(Trainer& trainer, BatchSource& batches, const RunPlan& plan,
                   const RunSettings& settings, RunRecorder& recorder, RunIdentity identity,
                   JobEvents& events)
    : trainer_(trainer),
      batches_(batches),
      plan_(plan),
      settings_(settings),
      recorder_(recorder),
      identity_(std::move(identity)),
      events_(events),
      checkpoints_(settings.checkpoints_in(recorder.directory())),
      micro_(size_t(plan.accumulate)) {
  if (settings.saves()) {  // better now than after the steps that were to be saved
    try {
      check_writable(checkpoints_);
    } catch (const FormatError& e) {
      throw_format("checkpoints cannot be kept in {}: {}", checkpoints_.string(), e.what());
    }
  }
  for (PackedBatch& b : micro_) reserve(b, batches.bounds());
  trainer_.phase = [this](const char* name) { recorder_.phase(name, at_step_); };
  trainer_.give_up = [this] { return events_.stop_requested(); };
}

// The newest one that can be read. Damaged ones are set aside once an older one is found sound.
void TrainRun::resume() {
  std::vector<CheckpointFile> found = list_checkpoints(good_directory());
  for (const CheckpointFile& c : list_checkpoints(checkpoints_)) found.push_back(c);
  std::ranges::stable_sort(found, {}, &CheckpointFile::step);
  if (!settings_.resume) {
    if (found.empty()) return;
    throw_usage(
        "{} holds checkpoints of an earlier run: go on with --resume, or name another "
        "--checkpoint-dir",
        found.back().path.parent_path().string());
  }
  if (found.empty()) {
    log_warning(
        "--resume: nothing in {} to go on from, which is empty or did not exist: the run begins at "
        "step 1",
        checkpoints_.string());
    return;
  }
  std::vector<std::pair<fs::path, std::string>> damaged;
  for (; !found.empty(); found.pop_back()) {
    try {
      position_ = load_checkpoint(found.back().path, trainer_.state(), identity());
      break;
    } catch (const FormatError& e) {
      damaged.emplace_back(found.back().path, e.what());
    }
  }
  if (found.empty()) {
    std::string all;
    for (const auto& [file, why] : damaged) all += why + "\n";
    throw_format("{}No checkpoint in {} can be read: start anew in another --checkpoint-dir", all,
                 checkpoints_.string());
  }
  for (const auto& [file, why] : damaged) {
    log_warning("{}; it is set aside as {}.damaged, and an older one is taken", why, file.string());
    set_aside(file);
  }
  if (leader_) leader_->load(found.back().path);
  trainer_.progress = position_.trainer;
  saved_ = position_.trainer.step;
  if (gates_) gates_->restore(position_.note);
  remove_checkpoints_after(good_directory(), position_.trainer.step);  // they will come again
  keep_newest_checkpoints(checkpoints_, settings_.kept());  // a kill came before they were removed
  log_info("resumed from {} at step {}", found.back().path.string(), position_.trainer.step);
  continue_record(found.back());
}

// The curve goes on where it was: what the run that saved this wrote down comes first.
void TrainRun::continue_record(const CheckpointFile& from) {
  const fs::path before =
      run_of_checkpoint(from.path, settings_.folder.runs_dir, recorder_.directory());
  if (before.empty()) return;
  recorder_.continue_from(before, from.step, gates_ && gates_->has_baseline());
  const StepRecord& last = recorder_.last_step();
  if (last.step == 0) return;
  last_loss_ = last.loss;
  if (std::isfinite(last.smoothed_loss)) {
    smoothed_ = last.smoothed_loss;
    averaged_ = std::min(last.step, kSmoothedOver);
  }
}

const RunIdentity& TrainRun::identity() {
  identity_.try_emplace(kInputFileKey);
  for (const auto& [key, role] : {std::pair(kInputFileKey, "weights"), {kTeacherKey, "teacher"}}) {
    const auto known = identity_.find(key);
    if (known == identity_.end() || !known->second.empty()) continue;
    known->second = recorder_.hash_of(role);
    if (known->second.empty()) known->second = "changed while it was read";
  }
  return identity_;
}

// Whatever was to come after this point is not to be resumed from.
void TrainRun::went_back() {
  remove_checkpoints_after(checkpoints_, trainer_.progress.step);
  smoothed_ = 0;
  averaged_ = 0;
  watch_ = {};
  done_ = 0;
  seconds_ = 0;
  if (settings_.saves()) save();
}

void TrainRun::begin_again(double lr_factor) {
  position_ = {};
  trainer_.progress.lr_factor = lr_factor;
  went_back();
}

std::optional<CheckpointFile> TrainRun::good_gate() const {
  std::vector<CheckpointFile> good = list_checkpoints(good_directory());
  std::erase_if(good, [&](const CheckpointFile& c) { return c.step >= trainer_.progress.step; });
  if (good.empty()) return std::nullopt;
  return good.back();
}

void TrainRun::roll_back(const CheckpointFile& to, double lr_factor) {
  position_ = load_checkpoint(to.path, trainer_.state(), identity());
  if (leader_) leader_->load(to.path);
  trainer_.progress = position_.trainer;
  trainer_.progress.lr_factor = lr_factor;
  if (gates_) gates_->next_attempt(position_.note);
  went_back();
}

void TrainRun::save_good() {
  position_.trainer = trainer_.progress;
  if (gates_) position_.note = gates_->note();
  save_checkpoint(good_directory(), trainer_.state(), position_, identity(), 1, plan_.base);
}

void TrainRun::save() {
  position_.trainer = trainer_.progress;
  if (gates_) position_.note = gates_->note();
  const fs::path path = save_checkpoint(checkpoints_, trainer_.state(), position_, identity(),
                                        settings_.kept(), plan_.base);
  saved_ = trainer_.progress.step;
  saved_at_ = std::chrono::steady_clock::now();
  recorder_.checkpoint(path, plan_.base.weights.empty() ? fs::path() : path);
  events_.checkpoint_saved(path);
  log_info("checkpoint {}", path.string());
}

void TrainRun::save_before_export() {
  if (saved_ != trainer_.progress.step) save();
}

uint64_t TrainRun::bytes_to_come(bool exports) const {
  const int64_t left = plan_.steps - trainer_.progress.step, kept = settings_.kept();
  if (left == 0) return exports && saved_ != plan_.steps ? checkpoint_bytes(trainer_.state()) : 0;
  const int64_t saves = settings_.save_every > 0 ? left / settings_.save_every + 1 : left;
  int64_t files = settings_.saves() || exports ? 1 : 0;
  // While one is written those that are kept are still there.
  if (settings_.saves()) files = std::min(saves, kept > 0 ? kept + 1 : saves);
  files -= std::min<int64_t>(files, int64_t(list_checkpoints(checkpoints_).size()));
  if (gates_ && gates_->settings().on_collapse == OnCollapse::rollback) files += 2;
  return uint64_t(files) * checkpoint_bytes(trainer_.state());
}

bool TrainRun::due(const StepResult& r, bool at_end) const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_at_;
  const double minutes = settings_.minutes();
  if (!at_end && minutes > 0 && since.count() >= 60 * minutes) return true;
  return settings_.save_every > 0 && (r.step % settings_.save_every == 0 || at_end);
}

std::optional<double> TrainRun::held_out_loss(BatchSource& held_out, bool to_the_end) {
  PackedBatch batch;
  reserve(batch, held_out.bounds());
  double sum = 0;
  int64_t scored = 0;
  for (uint64_t at = 0; held_out.epoch(at) < 1;) {
    if (!to_the_end && events_.stop_requested())
      return std::nullopt;  // the checkpoint does not wait for it
    at = held_out.next(batch, at);
    sum += trainer_.evaluate(batch) * double(batch.outputs());
    scored += batch.outputs();
  }
  return sum / double(std::max<int64_t>(1, scored));
}

std::string TrainRun::log_line(const StepResult& r, double seconds) const {
  const double left = seconds_ / double(std::max<int64_t>(1, done_)) * double(plan_.steps - r.step);
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f} (smoothed {:.4f}){}  lr {:.2e}  |g| {:.3g}{}  {:.0f} tok/s  {:.0f} "
      "ms  "
      "{}",
      r.step, plan_.steps, r.loss, smoothed_, kept_text(r), r.lr, r.grad_norm,
      r.clip < 1 ? fmt::format(" clipped to {:.3g}", r.grad_norm * r.clip) : "",
      double(r.tokens) / seconds, seconds * 1e3, format_bytes(process_resident_bytes()));
  if (r.step < plan_.steps) line += "  " + duration_text(left) + " left";
  if (trainer_.progress.skipped > 0) line += fmt::format("  skipped {}", trainer_.progress.skipped);
  return line;
}

void TrainRun::record(const StepResult& r, double seconds) {
  last_loss_ = r.loss;
  if (std::isfinite(r.loss)) {
    averaged_ = std::min(averaged_ + 1, kSmoothedOver);
    smoothed_ += (r.loss - smoothed_) / double(averaged_);
  }
  StepRecord s;
  s.step = r.step;
  s.loss = r.loss;
  s.smoothed_loss = smoothed_;
  s.lr = r.lr;
  s.grad_norm = r.grad_norm;
  s.tokens = r.tokens;
  s.response_tokens = r.scored;
  s.kept_tokens = r.kept;
  if (r.kept > 0 || !std::isnan(last_kept_)) {  // a run that keeps rows, though not in every step
    s.taught_loss = r.taught_loss.value_or(kNoValue);
    s.kept_loss = r.kept_loss.value_or(kNoValue);
  }
  if (r.kept_loss) last_kept_ = *r.kept_loss;
  s.seconds = seconds;
  s.tokens_per_second = double(r.tokens) / seconds;
  s.skipped = r.skipped;
  s.loss_scale = r.loss_scale;
  s.rss_bytes = process_resident_bytes();
  recorder_.step(s);
  s.gpu_bytes = recorder_.gpu_bytes();
  events_.step_done(s);
  if (r.skipped) {
    log_warning("step {} skipped: {} (skipped {} so far)", r.step, r.problem,
                trainer_.progress.skipped);
  } else if (r.bad_tensors > 0) {
    log_warning("step {}: {} tensors not updated: {}", r.step, r.bad_tensors, r.problem);
  }
  const bool shown = events_.shows_steps() && !settings_.log_every;
  const bool at_ends = r.step == plan_.steps || (!shown && (r.step == 1 || done_ == 1));
  if (at_ends || (!shown && r.step % settings_.log_every.value_or(kLogEvery) == 0)) {
    log_info("{}", log_line(r, seconds));
  }
}

std::optional<std::string> TrainRun::ran_away(const StepResult& r, bool last) {
  const TrainState& state = trainer_.state();
  const double guessing = state.settings().loss == LossKind::ce
                              ? std::log(double(state.config().V))
                              : std::numeric_limits<double>::infinity();
  const auto alarm = watch_.add(r.loss, r.skipped, guessing, last);
  return alarm && alarm->certain ? std::optional(alarm->why) : std::nullopt;
}

RunEnd TrainRun::run(BatchSource* held_out) {
  const StepsScope scope(events_);
  if (gates_ && gates_->has_passed()) return RunEnd::passed;  // when it was saved
  while (trainer_.progress.step < plan_.steps) {
    const auto start = std::chrono::steady_clock::now();
    const uint64_t data_before = position_.data_position;
    for (PackedBatch& b : micro_) {
      position_.data_position = batches_.next(b, position_.data_position);
    }
    at_step_ = trainer_.progress.step + 1;
    recorder_.phase("batch_ready", at_step_);
    recorder_.phase("zero_grad_done", at_step_);  // gradients are overwritten, never cleared
    const StepResult r =
        leader_ ? leader_->step(trainer_, micro_, data_before) : trainer_.step(micro_);
    if (r.given_up) {  // between its micro-batches: it will be taken anew, from the same samples
      position_.data_position = data_before;
      if (trainer_.progress.step > 0) save();
      return RunEnd::interrupted;
    }
    const double seconds = seconds_between(start, std::chrono::steady_clock::now());
    seconds_ += seconds;
    ++done_;
    record(r, seconds);
    const bool last = r.step == plan_.steps;
    GateVerdict gate;
    if (gates_) {
      gate = gates_->after_step(r, last);
      if (const ProbeScores* scores = gates_->scores_at(r.step)) {
        events_.gate_done(r.step, *scores);
        recorder_.gate(r.step, percents_of(*scores));
      }
    } else if (const auto why = ran_away(r, last)) {
      gate = {GateVerdict::Kind::collapsed, *why, true};
    }
    if (gate.kind == GateVerdict::Kind::collapsed) {
      collapse_ = gate.reason;
      return RunEnd::collapsed;
    }
    const bool passed = gate.kind == GateVerdict::Kind::passed;
    const bool saving = due(r, last || passed);
    if (held_out && (last || (plan_.eval_every > 0 && r.step % plan_.eval_every == 0))) {
      if (const std::optional<double> loss = held_out_loss(*held_out, last)) {
        recorder_.held_out(r.step, *loss);
        events_.held_out_done(r.step, *loss);
        log_info("step {}: held-out loss {:.4f}", r.step, *loss);
      }
    }
    // Without gates in between the losses alone say what is good, and a checkpoint when.
    if (gates_ && gates_->settings().on_collapse == OnCollapse::rollback && gate.good &&
        (gates_->settings().every > 0 || saving)) {
      save_good();
    }
    if (saving) save();
    if (passed && !last) return RunEnd::passed;
    if (events_.stop_requested() && !last) {
      if (!saving) save();
      return RunEnd::interrupted;
    }
  }
  return RunEnd::finished;
}

}  // namespace nibble
