// SPDX-License-Identifier: MIT
#include "library/loaded_model.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>

#include "convert/convert.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "data/records.h"
#include "job/train_job.h"
#include "runtime/model_output.h"
#include "runtime/model_template.h"
#include "runtime/model_texts.h"
#include "runtime/staged_output.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

fs::path new_scratch_folder() {
  std::string name = (fs::temp_directory_path() / "nibble-XXXXXX").string();
  if (!::mkdtemp(name.data())) {
    throw_format("no folder can be made in {}; TMPDIR says where temporary files go",
                 fs::temp_directory_path().string());
  }
  return name;
}

// Hands the job's steps to a callback, and the callback's wish back to the job.
class CallbackEvents final : public JobEvents {
 public:
  CallbackEvents(const LoadedModel::OnStep& on_step, int64_t steps)
      : on_step_(on_step), steps_(steps) {}
  bool stop_requested() override { return stopped; }
  void step_done(const StepRecord& r) override {
    if (on_step_ && !on_step_(r.step, steps_, r.loss)) stopped = true;
  }
  bool stopped = false;  // also in the last step, behind which a job does not ask any more

 private:
  const LoadedModel::OnStep& on_step_;
  int64_t steps_;
};

void remove_quietly(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

}  // namespace

LoadedModel::LoadedModel(const RuntimeOptions& options, const CacheOptions& cache)
    : options_(options), cache_(cache) {
  open(options.model.model);
}

LoadedModel::~LoadedModel() {
  if (!trained_.empty()) remove_quietly(trained_.parent_path());
}

Runtime& LoadedModel::runtime() {
  if (!runtime_) {
    throw_usage(
        "the model is not loaded: it is being trained at the moment, or could not be loaded again "
        "after a training that failed");
  }
  return *runtime_;
}

void LoadedModel::open(const fs::path& model) {
  RuntimeOptions options = options_;
  options.model.model = model;
  auto runtime = std::make_unique<Runtime>(open_runtime(options, TokenizerNeed::required, &cache_));
  auto engine =
      std::make_unique<Engine>(*runtime->backend, runtime->model, runtime->engine_options(cache_));
  chat_ = choose_template({}, runtime->paths.tokenizer);
  engine_ = std::move(engine);  // before the runtime it belongs to goes
  runtime_ = std::move(runtime);
}

bool LoadedModel::reply(const std::vector<Message>& messages, const GenerateOptions& options,
                        const std::function<bool(std::string_view)>& on_text) {
  const Tokenizer& tokenizer = runtime().require_tokenizer();
  const std::vector<int32_t> prompt =
      encode_chat(tokenizer, messages, {}, {*chat_, GenerationPrompt::yes}, SpecialTokens::plain);
  GenerateOptions o = options;
  o.stop_ids = runtime().stop_ids();
  engine_->reset();
  StreamDecoder decoder(tokenizer, DecodeSpecial::skip);
  bool wanted = true;
  const auto emit = [&](const std::string& piece) {
    if (wanted && !piece.empty()) wanted = on_text(piece);
    return wanted;
  };
  const GenerateResult r =
      generate(*engine_, prompt, o, [&](int32_t id) { return emit(decoder.push(id)); });
  emit(decoder.flush());
  if (is_unhealthy(r.reason)) {
    throw CheckFailed(
        fmt::format("the model is broken: generation ended as {}", finish_reason_name(r.reason)));
  }
  return wanted;
}

bool LoadedModel::teach(const std::vector<TaughtRow>& rows, const TeachSettings& settings,
                        const OnStep& on_step) {
  if (rows.empty()) throw_usage("there is nothing to teach: no rows were given");
  if (settings.steps < 0) throw_usage("{} steps were asked for", settings.steps);
  const bool dat = runtime().source->format() == "dat";
  const fs::path scratch = new_scratch_folder();
  try {
    std::string lines;
    for (const TaughtRow& r : rows) {
      lines += chat_line(std::vector<std::string>{r.prompt, r.response}) + "\n";
    }
    write_new_file(scratch / "rows.jsonl", lines);

    TrainJob job;
    job.model = options_.model;
    job.model.model = current();
    job.data.train_data = scratch / "rows.jsonl";
    job.batch.batch_size = settings.batch_size;
    job.batch.seq_len = settings.seq_len;
    job.train.device = options_.device;
    job.train.threads = options_.threads;
    job.train.lr = settings.lr;
    job.train.seed = settings.seed;
    job.run.folder.runs_dir = settings.runs_dir;
    job.output = scratch / (dat ? "model.dat" : "model");  // in the form of the input
    if (settings.steps > 0) job.steps = settings.steps;
    job.check();
    CallbackEvents events(on_step, steps_of(job, int64_t(rows.size())));
    // The memory of the model that is loaded is the training's until it is done.
    engine_.reset();
    runtime_.reset();
    const JobResult result = run_train_job(job, open_train_inputs(job.model), events);
    if (events.stopped || result.end == JobEnd::interrupted) {
      open(current());
      remove_quietly(scratch);
      return false;
    }
    if (!result.ok()) {
      throw CheckFailed(fmt::format("the training did not come out well: {}; its record is in {}",
                                    fmt::join(result.problems, "; "), result.folder.string()));
    }
    open(job.output);
    if (!trained_.empty()) remove_quietly(trained_.parent_path());
    trained_ = job.output;
  } catch (...) {
    remove_quietly(scratch);
    try {
      if (!runtime_) open(current());
    } catch (const std::exception& again) {
      log_warning("the model could not be loaded again: {}", again.what());
    }
    throw;
  }
  return true;
}

void LoadedModel::save(const fs::path& out) {
  const Runtime& r = runtime();
  ConvertSettings settings;
  settings.container = container_for(out);
  settings.packing = Packing::stored;
  const OutputPlace place = check_output(out, settings.container, Overwrite::refuse);
  refuse_replacing_weights(*r.source, out, settings.container);
  const bool gguf = settings.container == Container::gguf;
  if (!gguf) refuse_other_model(r.paths.config, place.directory, Overwrite::refuse);
  OutputTexts texts{r.paths.config, r.paths.tokenizer, {}};
  texts.origin.name = name_of_output(out);
  texts.origin.parent = model_name(r.paths.weights, r.paths.config);
  settings.metadata = output_metadata(settings.container, r.model.config, texts);
  const FileLock lock = lock_output(out);
  StagedOutput staged(out, settings.container, Overwrite::refuse);
  ThreadPool pool(options_.threads > 0 ? options_.threads : default_thread_count());
  const ConvertSummary done =
      convert_weights(*r.source, &r.model.config, staged.weights(), settings, pool);
  if (!gguf) {
    const OutputQuantization own;  // nibble's names, whatever the input's were
    write_model_config(r.paths.config, staged, done.untied, Overwrite::refuse, &own);
    copy_companions(place_of(r.paths.tokenizer), staged, Overwrite::refuse);
  }
  complete_output(staged, settings.container, texts, settings.metadata, Overwrite::refuse);
  staged.publish();
}

}  // namespace nibble
