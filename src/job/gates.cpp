// SPDX-License-Identifier: MIT
#include "job/gates.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "eval/probe_report.h"
#include "runtime/runtime.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
// A sign of collapse in the replies counts when two gates in a row show it: on its way to a new
// identity a model may give it to everyone for a while.
constexpr int64_t kPatience = 2;
constexpr double kDefaultScore = 95;

size_t acts_bytes(const Config& c, const EngineOptions& o, int64_t tokens, int64_t outputs) {
  constexpr size_t kTables = 1 << 16;
  Arena measure("activations");
  make_acts(measure, c, {tokens, outputs, o.compute, o.stat, Keep::none});
  return measure.peak() + kTables;
}

Json signs_json(const ReplySigns& s) {
  return {{"repeating", s.repeating},
          {"identity", s.identity},
          {"identity_group", s.identity_group},
          {"not_finite", s.not_finite}};
}

ReplySigns signs_from(const nlohmann::json& j) {
  return {j.at("repeating"), j.at("identity"), j.at("identity_group"), j.at("not_finite")};
}

// {"identity": {"passed": 3, "total": 4, "languages": {"zh": {...}}}, ...}
Json scores_by_group(const ProbeScores& scores) {
  const auto score = [](const Score& s) { return Json{{"passed", s.passed}, {"total", s.total}}; };
  Json j = Json::object();
  for (const GroupScore& g : scores.groups) {
    j[g.name] = score(g.all);
    for (const auto& [language, s] : g.languages) j[g.name]["languages"][language] = score(s);
  }
  return j;
}

std::string line_of(const Json& j) {
  // Replies may end inside a character.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string short_scores(const ProbeScores& scores) {
  std::string text;
  for (const GroupScore& g : scores.groups) {
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", g.name, g.all.percent());
  }
  return text;
}

}  // namespace

void GateSettings::check(int64_t save_every) const {
  if (stop_when_passed && every == 0) {
    throw_usage("--stop-when-passed needs gates in between: --probe-every N");
  }
  if (on_collapse == OnCollapse::rollback && every == 0 && save_every == 0) {
    throw_usage(
        "--on-collapse rollback needs something to go back to: gates (--probes and --probe-every "
        "N) or checkpoints (--save-every-steps N)");
  }
  if (!min_score.empty()) parse_min_scores(min_score);
}

Gates::Gates(const GateSettings& settings, const Tokenizer& tokenizer, const ChatTemplate& style)
    : settings_(settings), tokenizer_(tokenizer) {
  ask_.style = style;
  if (settings.probes.empty()) return;
  file_ = read_probes(settings.probes);
  all_ = sample_probes(file_->set, 0);
  some_ = sample_probes(file_->set, settings.most);
  marks_.emplace(file_->set);
  if (!settings.min_score.empty()) {
    wanted_ = parse_min_scores(settings.min_score);
  } else if (settings.stop_when_passed) {
    wanted_ = {{"", "", false, kDefaultScore}};
  }
  std::vector<ProbeResult> unanswered;
  for (const Probe* p : all_) unanswered.push_back({p, {}, {}});
  const ProbeScores shape = score_probes(unanswered);
  check_min_scores(wanted_, shape, &shape);
}

Gates::~Gates() = default;

EngineOptions Gates::engine_options(const TrainSettings& s, const Backend& be) {
  EngineOptions o;
  o.compute = s.compute;
  o.stat = s.stat;
  // As inference does it by default: gates predict what check will say of the exported file.
  const bool packed = s.recipe == Recipe::nvfp4 && s.stat == DType::f32;
  const Device::Kind device = be.traits().device == DeviceKind::cuda ? Device::cuda : Device::cpu;
  o.activations = default_activations(device, packed);
  o.cache = default_cache(device, o.activations, s.compute);
  return o;
}

uint64_t Gates::bytes(const Backend& be, const Config& c, const TrainSettings& s) const {
  if (!file_) return 0;
  const EngineOptions o = engine_options(s, be);
  const ProbeShape shape = probe_shape(all_, tokenizer_, ask_, c, o.cache);
  return KvCache::bytes(c, shape.context * shape.sequences, o.cache) +
         acts_bytes(c, o, std::min(shape.context, o.chunk), 1) +
         acts_bytes(c, o, shape.sequences, shape.sequences);
}

void Gates::begin(TrainState& state, int64_t step, const std::filesystem::path& folder) {
  folder_ = folder;
  const Config& c = state.config();
  if (state.settings().loss == LossKind::ce) guessing_ = std::log(double(c.V));
  if (!file_) return;
  view_ = std::make_unique<InferenceView>(state);
  EngineOptions o = engine_options(state.settings(), state.backend());
  const ProbeShape shape = probe_shape(all_, tokenizer_, ask_, c, o.cache);
  o.context = shape.context;
  engine_ = std::make_unique<BatchEngine>(state.backend(), view_->model(), o, shape.sequences);
  ask_.stop_ids = stop_ids_of(c, &tokenizer_);
  if (memory_.baseline) {
    if (step == 0) return;
    const Asked now = ask(all_);  // a resumed run may have nothing left to do
    last_ = {step, memory_.attempt, now.scores, &memory_.all};
    low_ = low_scores(now.scores, wanted_, &memory_.all);
    return;
  }
  if (step > 0) {
    log_warning(
        "the checkpoint knows no scores of these probes before the training: they are compared "
        "with those of step {}",
        step);
  }
  const Asked first = ask(all_);
  memory_.all = first.scores;
  memory_.all_signs = first.signs;
  std::vector<ProbeResult> in_between;
  for (const ProbeResult& r : first.results) {
    if (std::ranges::find(some_, r.probe) != some_.end()) in_between.push_back(r);
  }
  memory_.some = score_probes(in_between);
  memory_.some_signs = reply_signs(in_between, *marks_);
  memory_.baseline = true;
  last_ = {step, memory_.attempt, first.scores, nullptr};
  log_info("probes before the training: {} ({:.1f} s)", short_scores(first.scores), first.seconds);
  record(step, first, low_scores(first.scores, wanted_, &memory_.all), "");
}

void Gates::end() {
  engine_.reset();
  view_.reset();
}

Gates::Asked Gates::ask(const std::vector<const Probe*>& probes) {
  const auto start = std::chrono::steady_clock::now();
  view_->refresh();
  Asked a;
  BatchEngine* const engine = engine_.get();
  a.results = ask_probes({&engine, 1}, tokenizer_, probes, ask_);
  a.scores = score_probes(a.results);
  a.signs = reply_signs(a.results, *marks_);
  a.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return a;
}

GateVerdict Gates::gate(int64_t step, bool last) {
  // The end is judged by every probe, and so is a run that is to end early.
  bool every = last || some_.size() == all_.size();
  Asked asked = ask(every ? all_ : some_);
  low_ = low_scores(asked.scores, wanted_, every ? &memory_.all : &memory_.some);
  if (!every && settings_.stop_when_passed && low_.empty()) {
    every = true;
    asked = ask(all_);
    low_ = low_scores(asked.scores, wanted_, &memory_.all);
  }
  last_ = {step, memory_.attempt, asked.scores, every ? &memory_.all : &memory_.some};
  CollapseLimits limits;
  limits.least_retention = settings_.min_retention / 100;
  const auto alarm = gate_alarm(asked.scores, asked.signs, every ? memory_.all : memory_.some,
                                every ? memory_.all_signs : memory_.some_signs, limits);
  log_info("step {}: probes {} ({:.1f} s)", step, short_scores(asked.scores), asked.seconds);
  record(step, asked, low_, alarm.value_or(""));
  GateVerdict v;
  memory_.alarms = alarm ? memory_.alarms + 1 : 0;
  v.good = !alarm;
  if (alarm && (memory_.alarms >= kPatience || last || asked.signs.not_finite > 0)) {
    v.kind = GateVerdict::Kind::collapsed;
    v.reason = *alarm;
    v.certain = asked.signs.not_finite > 0;
  } else if (alarm) {
    log_warning("step {}: {}; once more, and it is a collapse", step, *alarm);
  } else if (settings_.stop_when_passed && low_.empty()) {
    v.kind = GateVerdict::Kind::passed;
    memory_.passed = true;
  }
  return v;
}

GateVerdict Gates::after_step(const StepResult& r, bool last) {
  GateVerdict v;
  if (const auto alarm = memory_.watch.add(r.loss, r.skipped, guessing_, last)) {
    v = {GateVerdict::Kind::collapsed, alarm->why, alarm->certain};
  }
  // Losses that are to be ignored take no gate away: the end is judged whatever they were.
  v = unless_ignored(r.step, std::move(v), told_.of_losses);
  if (v.kind == GateVerdict::Kind::collapsed) return v;
  const bool due = file_ && (last || (settings_.every > 0 && r.step % settings_.every == 0));
  if (due) return unless_ignored(r.step, gate(r.step, last), told_.of_replies);
  v.good = settings_.every == 0;  // nothing but the losses says what is good in between
  return v;
}

GateVerdict Gates::after_training(int64_t step, double loss) {
  const auto alarm = memory_.watch.at_end(loss, guessing_);
  if (!alarm) return {};
  return unless_ignored(step, {GateVerdict::Kind::collapsed, alarm->why, alarm->certain},
                        told_.of_losses);
}

// Both go on saying it once they have begun: it is told once.
GateVerdict Gates::unless_ignored(int64_t step, GateVerdict v, bool& told) const {
  if (v.kind != GateVerdict::Kind::collapsed) return v;
  const OnCollapse action = settings_.on_collapse;
  if (action != OnCollapse::ignore && !(action == OnCollapse::automatic && !v.certain)) return v;
  if (!std::exchange(told, true)) {
    log_warning("step {}: collapse: {}", step, v.reason);
    record_collapse(step, v.reason, OnCollapse::ignore, std::nullopt);
  }
  return {};
}

std::string Gates::note() const {
  const LossWatch::State& w = memory_.watch.state;
  Json j = {{"attempt", memory_.attempt},
            {"alarms", memory_.alarms},
            {"passed", memory_.passed},
            {"losses",
             {{"count", w.losses},
              {"bad", w.bad_in_a_row},
              {"skipped", w.skipped_in_a_row},
              {"first", w.first},
              {"start_sum", w.start_sum},
              {"smoothed", w.smoothed},
              {"lowest", w.lowest},
              {"high", w.high_in_a_row}}}};
  if (memory_.baseline) {
    j["baseline"] = {{"probes", file_->hash},
                     {"in_between", some_.size()},
                     {"all", scores_json(memory_.all)},
                     {"some", scores_json(memory_.some)},
                     {"all_signs", signs_json(memory_.all_signs)},
                     {"some_signs", signs_json(memory_.some_signs)}};
  }
  return j.dump();
}

void Gates::restore(const std::string& note) {
  if (note.empty()) return;
  try {
    const nlohmann::json j = parse_json<nlohmann::json>(note);
    Memory m;
    constexpr int64_t kMost = int64_t(1) << 53;
    const auto count = [](const nlohmann::json& v) {
      if (!v.is_number_unsigned() || v.get<uint64_t>() > uint64_t(kMost)) {
        throw_format("the checkpoint's record of its gates is damaged: {} is no count", v.dump());
      }
      return v.get<int64_t>();
    };
    m.attempt = count(j.at("attempt"));
    m.alarms = count(j.at("alarms"));
    m.passed = j.at("passed");
    const nlohmann::json& w = j.at("losses");
    m.watch.state = {count(w.at("count")),   count(w.at("bad")),
                     count(w.at("skipped")), w.at("first"),
                     w.at("start_sum"),      w.at("smoothed"),
                     w.at("lowest"),         w.contains("high") ? count(w["high"]) : 0};
    // Of other questions the scores say nothing.
    if (file_ && j.contains("baseline") && j["baseline"].at("probes") == file_->hash &&
        j["baseline"].at("in_between") == some_.size()) {
      const nlohmann::json& b = j["baseline"];
      m.baseline = true;
      m.all = scores_from_json(b.at("all"), "the checkpoint's probes");
      m.some = scores_from_json(b.at("some"), "the checkpoint's probes");
      m.all_signs = signs_from(b.at("all_signs"));
      m.some_signs = signs_from(b.at("some_signs"));
    }
    if (!m.baseline) m.passed = false, m.alarms = 0;
    memory_ = std::move(m);
  } catch (const nlohmann::json::exception& e) {
    throw_format("the checkpoint's record of its gates is damaged: {}", e.what());
  }
}

void Gates::next_attempt(const std::string& note) {
  Memory before = memory_;
  memory_.watch = {};
  restore(note);
  if (!memory_.baseline) {  // the same model and the same probes
    memory_.baseline = before.baseline;
    memory_.all = before.all, memory_.some = before.some;
    memory_.all_signs = before.all_signs, memory_.some_signs = before.some_signs;
  }
  memory_.attempt = before.attempt + 1;
  memory_.alarms = 0;
  memory_.passed = false;
  low_.clear();
}

OnCollapse Gates::action() const {
  const bool again =
      settings_.on_collapse == OnCollapse::restart || settings_.on_collapse == OnCollapse::rollback;
  const bool stop = (again && memory_.attempt >= settings_.max_restarts) ||
                    settings_.on_collapse == OnCollapse::automatic;
  return stop ? OnCollapse::stop : settings_.on_collapse;
}

void Gates::record(int64_t step, const Asked& asked, const std::vector<std::string>& low,
                   const std::string& alarm) const {
  Json line = {{"step", step},
               {"attempt", memory_.attempt},
               {"event", "gate"},
               {"scores", scores_by_group(asked.scores)},
               {"signs", signs_json(asked.signs)},
               {"below_threshold", low},
               {"seconds", asked.seconds}};
  if (!alarm.empty()) line["alarm"] = alarm;
  append("probes.jsonl", {line_of(line)});
  // The same questions each time: the first of each group and language among those in between.
  std::map<std::pair<std::string, ReplyLanguage>, int64_t> taken;
  std::vector<std::string> replies;
  for (const ProbeResult& r : asked.results) {
    if (std::ranges::find(some_, r.probe) == some_.end()) continue;
    if (taken[{r.probe->group, r.probe->language}]++ >= settings_.replies) continue;
    Json j = {{"step", step}, {"attempt", memory_.attempt}};
    j.update(result_json(r));
    replies.push_back(line_of(j));
  }
  append("replies.jsonl", replies);
}

void Gates::record_collapse(int64_t step, const std::string& reason, OnCollapse action,
                            std::optional<double> lr_factor) const {
  Json line = {{"step", step},
               {"attempt", memory_.attempt},
               {"event", "collapse"},
               {"reason", reason},
               {"action", on_collapse_name(action)}};
  if (lr_factor) line["lr_factor"] = *lr_factor;
  append("probes.jsonl", {line_of(line)});
}

void Gates::append(const char* file, const std::vector<std::string>& lines) const {
  try {
    append_file(folder_ / file, fmt::format("{}", fmt::join(lines, "")));
  } catch (const FormatError& e) {  // a training is worth more than its record
    log_warning("{}", e.what());
  }
}

std::string Gates::table() const { return last_ ? score_table(last_->scores, last_->before) : ""; }

std::string Gates::last_gate() const {
  if (!last_) return "";
  return fmt::format("last gate: step {}, attempt {}\n{}", last_->step, last_->attempt, table());
}

}  // namespace nibble
