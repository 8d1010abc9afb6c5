// SPDX-License-Identifier: MIT
#include "job/train_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/log.h"
#include "core/warnings.h"
#include "formats/gguf/gguf.h"
#include "job/ranks/follow.h"
#include "job/ranks/rank_words.h"
#include "job/ranks/same_start.h"
#include "job/train_session.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr double kMostSteps = 1e15;

Destination destination(const TrainJob& job, const TrainInputs& in, const fs::path& out) {
  return check_destination(out, job.force ? Overwrite::allow : Overwrite::refuse, in,
                           job.other_inputs());
}

void record_inputs(RunRecorder& recorder, const TrainJob& job, const TrainInputs& in,
                   const JobSamples& samples, const std::optional<TeacherFile>& teacher,
                   const std::vector<fs::path>& kept, const Gates& gates, const Backend& backend) {
  if (!job.run.tensorboard.empty()) recorder.also_write_events_to(job.run.tensorboard);
  if (!job.run.vram_report.empty()) recorder.also_report_memory_to(job.run.vram_report);
  recorder.device(backend.name());
  for (const InputFile& f : in.source->files()) recorder.input("weights", f);
  const auto text = [&](std::string_view role, const fs::path& file, const std::string& sha256) {
    if (file == in.paths.weights) return;  // a GGUF is all three and is counted once
    if (looks_like_gguf(file)) {
      recorder.input(role, file);  // the text was made of some of it
    } else {
      recorder.input(role, file, sha256);
    }
  };
  text("config", in.paths.config, in.config_sha256);
  text("tokenizer", in.paths.tokenizer, in.tokenizer_sha256);
  if (samples.train) {
    recorder.input("train-data", job.data.train_data, samples.train->file_sha256());
  }
  if (samples.held_out) {
    recorder.input("eval-data", job.data.eval_data, samples.held_out->file_sha256());
  }
  if (teacher) {
    for (const InputFile& f : teacher->source->files()) recorder.input("teacher", f);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    recorder.input("kept-data", kept[i], samples.kept[i].file_sha256());
  }
  recorder.input("probes", job.gates.probes, gates.probes_hash());
  recorder.phase("start", 0);
}

SelfTestRecord test_export(const TrainJob& job, const TrainSettings& settings, const Destination& d,
                           const SelfTestReference& reference, const ChatTemplate& chat,
                           JobEvents& events) {
  RuntimeOptions exported;
  exported.model.model = d.path;
  exported.device = job.train.device;
  exported.threads = job.train.threads;
  exported.compute = job.train.compute;
  exported.activations = ActivationsChoice::bf16;
  if (settings.recipe == Recipe::nvfp4) exported.recipe = RecipeChoice::nvfp4;
  if (settings.head() != settings.recipe) {
    exported.head_recipe =
        settings.head() == Recipe::nvfp4 ? RecipeChoice::nvfp4 : RecipeChoice::bf16;
  }
  exported.scale_rule = settings.rule;
  return self_test(job.test, exported, reference, chat, events);
}

// After the training: the file tries itself, and the probes say how it stands.
void judge(TrainSession& s) {
  std::vector<std::string>& wrong = s.result.problems;
  if (s.target && s.job.test.enabled) {
    SelfTestRecord test =
        test_export(s.job, s.settings, *s.target, s.reference, s.in.chat, s.events);
    if (!test.passed) {
      wrong.push_back("the self-test of the exported model failed: " + test.problem);
    }
    s.recorder.self_test(std::move(test));
  }
  s.events.text(s.gates.table());
  for (const std::string& low : s.gates.low()) {
    wrong.push_back("probes: too low, " + low);
    s.events.text(wrong.back() + "\n");
  }
  if (wrong.empty()) s.remove_own_checkpoints();
  s.result.end = wrong.empty() ? JobEnd::finished : JobEnd::failed;
  s.recorder.finish(wrong.empty() ? RunState::finished : RunState::failed,
                    fmt::format("{}", fmt::join(wrong, "; ")));
  s.events.text(fmt::format("run folder {}\n", s.recorder.directory().string()));
}

}  // namespace

std::vector<fs::path> TrainJob::other_inputs() const {
  std::vector<fs::path> files{data.train_data, data.eval_data, gates.probes, keep.teacher};
  for (const std::string& name : keep.sources) files.emplace_back(name);
  return files;
}

void TrainJob::check() const {
  if (steps && epochs) throw_usage("--steps and --epochs both say how long: give one");
  if (!write_output && !output.empty()) {
    throw_usage("--output says where to write, and --export false that nothing is written");
  }
  if ((!write_output || !test.enabled) && !(test.prompt.empty() && test.expect.empty())) {
    throw_usage("--test-prompt and --test-expect belong to the self-test, which {} switches off",
                write_output ? "--self-test false" : "--export false");
  }
  if (force && output.empty() && run.vram_report.empty()) {
    throw_usage("--force is about --output and --vram-report, and neither is given");
  }
  const bool teaches = !data.train_data.empty();
  keep.check(teaches);
  if (keep.used() && train.loss != LossKind::ce) {
    throw_usage("--keep compares what two models say next, which --loss scalar does not look at");
  }
  if (!teaches && !data.eval_data.empty() && data.format == DataFormat::text) {
    throw_usage("--eval-data is scored on responses; plain text has none");
  }
  run.check();
  if (!run.tensorboard.empty()) check_tensorboard_folder(run.tensorboard, run.resume);
  gates.check(run.save_every);
  refuse_same_output({{"--output", output}, {"--vram-report", run.vram_report}});
  if (!output.empty()) {
    check_output(output, container_for(output), force ? Overwrite::allow : Overwrite::refuse);
  }
}

int64_t steps_of(const TrainJob& job, int64_t samples) {
  if (job.steps) return *job.steps;
  const bool teaches = !job.data.train_data.empty();
  const double kept = teaches ? job.keep.share_of(true).share() : 0;
  const double per_step = double(job.batch.batch_size * job.batch.accumulate) * (1 - kept);
  const double steps = std::ceil(job.epochs.value_or(1) * double(samples) / per_step);
  if (steps > kMostSteps) throw_usage("--epochs {:g} would be {:.3g} steps", *job.epochs, steps);
  return std::max<int64_t>(1, int64_t(steps));
}

namespace {

// The ranks agree that they were started for the same.
void begin_together(const TrainJob& job, const TrainInputs& in, const TrainSetup& setup,
                    const JobBatches& batches) {
  if (!job.ranks) return;
  Comm& comm = *job.ranks;
  if (!setup.backend->memory_is_host()) {
    throw_usage("several ranks train on CPUs so far: use --device cpu");
  }
  RunIdentity identity = run_identity(in.config, setup.settings);
  batches.train->add_identity(identity);
  check_same_start(comm, start_facts(job, in, identity));
  std::string hosts;
  for (int r = 0; r < comm.size(); ++r) hosts += (r ? ", " : "") + comm.host(r);
  log_info("{} ranks over {}: {}", comm.size(), comm.name(), hosts);
}

JobResult follow_train_job(const TrainJob& job, const TrainInputs& in, JobEvents& events) {
  TrainSetup setup;
  JobSamples samples = load_samples(job, in);
  setup.teacher = open_teacher(job.keep, in.config, &in.tokenizer, job.train.settings().compute);
  setup.backend = make_backend(job.train.device, job.train.threads);
  const Gates gates(GateSettings(), in.tokenizer, in.chat);
  samples.kept =
      load_all_kept(job, in, setup.teacher, *setup.backend, [] { return fs::path(); }).samples;
  JobBatches batches(job, samples);
  setup.as_trained = training_config(in.config, *in.source, job.train.untie);
  setup.settings = settle(job, in, setup.as_trained, *setup.backend, samples, batches.bounds,
                          setup.teacher, gates);
  begin_together(job, in, setup, batches);
  follow(job, in, setup, batches, events);
  return {};
}

JobResult lead_train_job(const TrainJob& job, TrainInputs in, JobEvents& events);

}  // namespace

JobResult run_train_job(const TrainJob& asked, TrainInputs in, JobEvents& events) {
  asked.check();
  TrainJob job = asked;
  if (job.ranks && job.ranks->size() == 1) job.ranks = nullptr;
  job.batch.accumulate = micro_batches_of(job);
  const bool follows = job.ranks && !job.ranks->leads();
  return follows ? follow_train_job(job, in, events) : lead_train_job(job, std::move(in), events);
}

namespace {

JobResult lead_train_job(const TrainJob& job, TrainInputs in, JobEvents& events) {
  const WarningCollector warnings;  // from here on all of them are in the record
  check_output_file(job.run.vram_report, job.force ? Overwrite::allow : Overwrite::refuse, in.paths,
                    job.other_inputs());
  const std::optional<FileLock> checkpoints = lock_checkpoints(job.run);
  std::optional<Destination> target;
  if (!job.output.empty()) target = destination(job, in, job.output);
  log_debug("{}", in.source->describe());
  JobSamples samples = load_samples(job, in);
  TrainSetup setup;
  setup.teacher = open_teacher(job.keep, in.config, &in.tokenizer, job.train.settings().compute);
  setup.backend = make_backend(job.train.device, job.train.threads);
  const auto& teacher = setup.teacher;
  const auto& backend = setup.backend;
  Gates gates(job.gates, in.tokenizer, in.chat);
  // What a teacher writes first lies beside the checkpoints, where a run that goes on finds it.
  std::optional<fs::path> folder;
  const auto run_folder = [&] {
    if (!folder) folder = create_run_folder(job.run.folder, job.name);
    return *folder;
  };
  KeptInputs kept = load_all_kept(job, in, teacher, *backend, [&] {
    return job.run.checkpoint_dir.empty() ? job.run.checkpoints_in(run_folder())
                                          : job.run.checkpoint_dir;
  });
  samples.kept = std::move(kept.samples);
  JobBatches batches(job, samples);
  setup.as_trained = training_config(in.config, *in.source, job.train.untie);
  setup.settings =
      settle(job, in, setup.as_trained, *backend, samples, batches.bounds, teacher, gates);
  const TrainSettings& settings = setup.settings;
  begin_together(job, in, setup, batches);
  std::optional<RankLeader> leader;
  if (job.ranks) leader.emplace(*job.ranks);

  RunRecorder recorder(run_folder(), job.name, job.config, settings.schedule.steps,
                       memory_source(*backend));
  recorder.record_warnings_of(warnings);
  if (job.write_output && !target) {
    target = destination(
        job, in, recorder.directory() / (in.source->format() == "dat" ? "model.dat" : "model"));
  }
  record_inputs(recorder, job, in, samples, teacher, kept.files, gates, *backend);
  events.run_begins(recorder.directory(), settings.schedule.steps);

  TrainSession session{job,
                       in,
                       *backend,
                       settings,
                       setup.as_trained,
                       samples,
                       batches,
                       teacher,
                       gates,
                       target ? &*target : nullptr,
                       recorder,
                       events,
                       leader ? &*leader : nullptr};
  session.result.folder = recorder.directory();
  for (double lr_factor = 1;;) {
    const RunEnd end = session.attempt(lr_factor);
    if (end == RunEnd::collapsed && session.result.end != JobEnd::collapsed) {
      gates.next_attempt("");
      continue;
    }
    const bool to_judge = session.result.end != JobEnd::collapsed;
    if (to_judge && (end == RunEnd::finished || end == RunEnd::passed)) judge(session);
    return session.result;
  }
}

}  // namespace

}  // namespace nibble
