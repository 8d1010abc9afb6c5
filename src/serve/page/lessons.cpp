// SPDX-License-Identifier: MIT
#include "serve/page/lessons.h"

#include "core/durable/directories.h"
#include "core/json.h"
#include "core/utc_time.h"
#include "runlog/diary/run_notes.h"
#include "runlog/run_prune.h"
#include "serve/api/api_error.h"
#include "serve/api/body_fields.h"
#include "serve/page/lesson_questions.h"
#include "serve/page/lesson_result.h"
#include "serve/page/lesson_rows.h"
#include "serve/page/run_names.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using Json = Lessons::Json;

[[noreturn]] void refuse(const char* code, const std::string& why) {
  throw ApiError(409, "invalid_request_error", why, "", code);
}

// In the form of the base: a folder of Hugging Face's, one safetensors file, or a .dat.
std::string output_name(const fs::path& weights) {
  std::error_code ec;
  if (fs::is_directory(weights, ec)) return "model";
  return weights.extension() == ".safetensors" ? "model/model.safetensors" : "model/model.dat";
}

std::string free_run_name(const fs::path& runs, const std::string& lesson) {
  std::error_code ec;
  for (int n = 2;; ++n) {
    std::string name = fmt::format("{}-{}", lesson, n);
    if (!fs::exists(runs / name, ec)) return name;
  }
}

Json preparing_json(const fs::path& log) {
  const auto p = preparing(log);
  if (!p) return nullptr;
  return {{"what", p->what}, {"percent", p->percent}, {"seconds_left", p->seconds_left}};
}

Json step_json(const RunStatus& s) {
  return {{"step", s.last.step},
          {"steps", s.steps},
          {"loss", s.last.loss},
          {"smoothed_loss", s.last.smoothed_loss},
          {"taught_loss", s.last.taught_loss},
          {"kept_loss", s.last.kept_loss},
          {"lr", s.last.lr},
          {"tokens_per_second", s.last.tokens_per_second},
          {"rss_bytes", s.last.rss_bytes},
          {"eta_seconds", s.eta_seconds},
          {"started_utc", s.started_utc},
          {"updated_utc", s.updated_utc}};
}

}  // namespace

Lessons::Lessons(ModelShelf& shelf, PageFolders folders, TeachSettings settings)
    : shelf_(shelf),
      folders_(std::move(folders)),
      settings_(std::move(settings)),
      store_(folders_.work / "lessons"),
      trainings_(settings_.program, folders_.runs),
      planner_(shelf.first(), folders_.runs) {}

fs::path Lessons::file_of(const StoredLesson& l, const char* file) const {
  return store_.folder(l.name) / file;
}

fs::path Lessons::model_folder(const StoredLesson& l) const {
  return l.kept_as.empty() ? file_of(l, "model") : folders_.models / l.kept_as;
}

// "model" names the folder itself, "model/model.dat" a file in it.
fs::path Lessons::model_path(const StoredLesson& l) const {
  const fs::path inside = fs::path(l.output).lexically_relative("model");
  return inside == "." ? model_folder(l) : model_folder(l) / inside;
}

LessonStanding Lessons::standing(const StoredLesson& l) const {
  LessonStanding s = trainings_.standing(l, file_of(l, "trainer.log"));
  std::error_code ec;
  // Its run was pruned, and what it made is here.
  if (s.phase == LessonPhase::failed_to_start && fs::exists(model_path(l), ec))
    s = {LessonPhase::ended, "finished", "", {}};
  return s;
}

bool Lessons::is_loaded(const StoredLesson& l) const {
  const auto second = shelf_.second();
  return second && second->name() == l.name;
}

void Lessons::refuse_while_training() const {
  for (const StoredLesson& l : store_.all()) {
    if (standing(l).goes_on())
      refuse("training", fmt::format("{} is being trained: one at a time", l.name));
  }
}

StoredLesson Lessons::require_ended(const std::string& name) const {
  StoredLesson l = store_.read(name);
  if (standing(l).goes_on()) refuse("training", name + " is being trained: stop it first");
  return l;
}

StoredLesson Lessons::require_model(const std::string& name) const {
  StoredLesson l = require_ended(name);
  std::error_code ec;
  if (!fs::exists(model_path(l), ec)) refuse("no_model", name + " has made no model");
  return l;
}

LessonBase Lessons::base_of(const Lesson& l) const {
  LessonBase base = settings_.base;
  if (l.from.empty()) return base;
  base.weights = model_path(require_model(l.from));
  base.model = {};
  base.model.model = base.weights;
  return base;
}

Json Lessons::summary(const StoredLesson& l, const LessonStanding& s) const {
  std::error_code ec;
  return {{"name", l.name},
          {"created_utc", l.created_utc},
          {"state", s.state},
          {"message", s.message},
          {"goes_on", s.goes_on()},
          {"from", l.lesson.from},
          {"rows", l.lesson.rows.size()},
          {"run", s.run.empty() ? Json() : Json(l.runs.back())},
          {"has_model", !s.goes_on() && fs::exists(model_path(l), ec)},
          {"loaded", is_loaded(l)},
          {"kept_as", l.kept_as}};
}

Json Lessons::overview() const {
  Lesson defaults = default_lesson(shelf_.first().runtime().model.config.parameter_count());
  for (const std::string_view q : kept_questions()) defaults.prompts.emplace_back(q);
  Json j = {{"base", shelf_.first().name()},
            {"can_teach", shelf_.first().model().tokenizer.has_value()},
            {"folders",
             {{"work", folders_.work.string()},
              {"runs", folders_.runs.string()},
              {"models", folders_.models.string()}}},
            {"defaults", lesson_json(defaults)},
            {"limits", {{"rows", LessonLimits::kRows}, {"prompts", LessonLimits::kPrompts}}},
            {"lessons", Json::array()}};
  for (const StoredLesson& l : store_.all()) j["lessons"].push_back(summary(l, standing(l)));
  return j;
}

Json Lessons::plan(const std::string& body) const {
  const Lesson defaults = default_lesson(shelf_.first().runtime().model.config.parameter_count());
  const Lesson lesson = read_lesson(parse_body(body), defaults, true);
  const std::lock_guard lock(planning_);
  return planner_.plan(lesson, base_of(lesson), trainings_.program());
}

void Lessons::begin(const StoredLesson& l, const fs::path& checkpoints) {
  const fs::path folder = store_.folder(l.name);
  if (l.output != "model") make_directories(folder / "model");
  const LessonPlace place{folder,      folders_.runs, l.runs.back(), folder / l.output,
                          checkpoints, l.window};
  trainings_.start(l.name, train_words(l.lesson, base_of(l.lesson), place), folder / "trainer.log");
}

Json Lessons::start(const std::string& body) {
  const std::lock_guard lock(changing_);
  const Lesson defaults = default_lesson(shelf_.first().runtime().model.config.parameter_count());
  StoredLesson l;
  l.lesson = read_lesson(parse_body(body), defaults, true);
  const LessonBase base = base_of(l.lesson);
  l.lesson.prompts = prompts_not_taught(l.lesson);
  l.window = window_of(l.lesson, shelf_.first());
  refuse_while_training();
  l.name = store_.make(folders_.runs);
  l.created_utc = utc_now_text();
  l.runs = {l.name};
  l.output = output_name(base.weights);
  write_lesson_rows(l.lesson, store_.folder(l.name));
  write_lesson_probes(l.lesson, other_questions(l.lesson), store_.folder(l.name));
  store_.write(l);
  begin(l, {});
  return summary(l, standing(l));
}

Json Lessons::status(const std::string& name) const {
  const StoredLesson l = store_.read(name);
  const LessonStanding s = standing(l);
  Json j = summary(l, s);
  j["lesson"] = lesson_json(l.lesson);
  j["window"] = l.window;
  j["checking"] = trainings_.checking(name);
  j["damage"] = damage_json(file_of(l, "damage.json"));
  if (s.goes_on()) j["preparing"] = preparing_json(file_of(l, "trainer.log"));
  if (s.run.empty()) return j;
  j["now"] = step_json(read_status(s.run));
  j["scores"] = lesson_scores(s.run);
  return j;
}

Json Lessons::stop(const std::string& name) const {
  const StoredLesson l = store_.read(name);
  if (!trainings_.stop(l)) refuse("not_training", name + " is not being trained");
  return summary(l, standing(l));
}

Json Lessons::resume(const std::string& name) {
  const std::lock_guard lock(changing_);
  StoredLesson l = require_ended(name);
  const LessonStanding s = standing(l);
  std::error_code ec;
  if (s.state == "finished" || fs::exists(model_path(l), ec))
    refuse("finished", name + " has been trained to its end");
  refuse_while_training();
  const fs::path checkpoints = folders_.runs / l.runs.front() / "checkpoints";
  // A run that never began has nothing to go on from, nor a name to keep.
  if (s.run.empty()) l.runs.pop_back();
  l.runs.push_back(l.runs.empty() ? l.name : free_run_name(folders_.runs, l.name));
  store_.write(l);
  begin(l, l.runs.size() > 1 ? checkpoints : fs::path());
  return summary(l, standing(l));
}

Json Lessons::load(const std::string& name) {
  const std::lock_guard lock(changing_);
  const StoredLesson l = require_model(name);
  if (!is_loaded(l)) {
    shelf_.put(nullptr);  // its memory may be needed
    shelf_.put(settings_.open(model_path(l), l.name));
  }
  return summary(l, standing(l));
}

Json Lessons::unload(const std::string& name) {
  const std::lock_guard lock(changing_);
  const StoredLesson l = store_.read(name);
  if (is_loaded(l)) shelf_.put(nullptr);
  return summary(l, standing(l));
}

Json Lessons::check(const std::string& name) {
  const std::lock_guard lock(changing_);
  const StoredLesson l = require_model(name);
  const fs::path text = file_of(l, "measured.txt");
  if (!write_measured_text(folders_.runs / l.runs.back(), text))
    refuse("no_text", name + " has recorded no replies to measure on");
  trainings_.start_check(
      name, check_words(model_path(l), base_of(l.lesson), text, file_of(l, "damage.json")),
      file_of(l, "check.log"));
  return summary(l, standing(l));
}

Json Lessons::keep(const std::string& name, const std::string& body) {
  const std::lock_guard lock(changing_);
  const Json j = parse_body(body);
  BodyFields f(j);
  const std::string as = f.text("name").value_or(name);
  f.finish();
  StoredLesson l = require_model(name);
  if (!is_plain_name(as))
    throw_invalid("name", "a model's name is a plain file name, without / and a leading dot");
  if (!l.kept_as.empty()) refuse("kept", fmt::format("{} is kept as {}", name, l.kept_as));
  std::error_code ec;
  if (fs::exists(folders_.models / as, ec))
    refuse("exists", fmt::format("there is a model '{}' already", as));
  make_directories(folders_.models);
  rename_durably(model_folder(l), folders_.models / as, Existing::keep);
  l.kept_as = as;
  store_.write(l);
  if (fs::exists(folders_.runs / l.runs.back(), ec))
    add_note(folders_.runs / l.runs.back(),
             fmt::format("kept as {}", (folders_.models / as).string()));
  return summary(l, standing(l));
}

Json Lessons::discard(const std::string& name) {
  const std::lock_guard lock(changing_);
  const StoredLesson l = require_ended(name);
  if (is_loaded(l)) shelf_.put(nullptr);
  std::vector<std::string> runs;
  std::error_code ec;
  for (const std::string& r : l.runs) {
    if (fs::exists(folders_.runs / r / "status.json", ec)) runs.push_back(r);
  }
  if (!runs.empty() && l.kept_as.empty())
    move_to_trash(folders_.runs, runs, {}, "the lesson was thrown away on the page");
  store_.discard(name);
  return {{"name", name}};
}

std::string Lessons::training() const noexcept {
  try {
    for (const StoredLesson& l : store_.all()) {
      if (standing(l).goes_on()) return l.runs.back();
    }
  } catch (const std::exception&) {  // what cannot be told is not said
  }
  return "";
}

TarStream Lessons::export_of(const std::string& name) const {
  const StoredLesson l = require_model(name);
  return {model_folder(l), l.kept_as.empty() ? l.name : l.kept_as};
}

}  // namespace nibble
