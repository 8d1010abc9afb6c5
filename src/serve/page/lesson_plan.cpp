// SPDX-License-Identifier: MIT
#include "serve/page/lesson_plan.h"

#include <algorithm>
#include <random>

#include "core/json.h"
#include "runlog/run_record.h"
#include "serve/api/api_error.h"
#include "serve/api/token_json.h"
#include "serve/page/lesson_questions.h"
#include "serve/page/lesson_rows.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kRound = 16, kLeastWindow = 48, kKeptWindow = 64, kReply = 40;
constexpr auto kPlanLimit = std::chrono::seconds(60);
// A step is a forward, a backward of twice its work, the teacher's forward of what is kept, and the
// optimizer: about five times a prompt of as many tokens, where nothing has been measured.
constexpr double kStepPerPrompt = 5;
constexpr double kAround = 5;  // seconds: opening, export, self-test of a small model
// Every question is asked before the first step, at each gate and at the end: about so many tokens
// with its reply, several at a time, at twice the speed of a prompt alone.
constexpr double kAsked = 40, kGatesInAll = kLessonGates + 2, kGateSpeed = 2;

// The last line of what a command said of its failure.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

int64_t window_of(const Lesson& l, const RunningModel& base) {
  const RowTokens t = row_tokens(l, base.model().require_tokenizer(), base.model().style);
  int64_t window = std::max(t.longest, kLeastWindow);
  if (l.keep == LessonKeep::own_text) window = std::max(window, kKeptWindow);
  if (l.keep == LessonKeep::prompts)
    window = std::max({window, kKeptWindow, t.longest_prompt + kReply});
  window = (window + kRound - 1) / kRound * kRound;
  const int64_t most = base.runtime().model.config.max_positions;
  if (most > 0 && t.longest > most)
    throw_invalid("rows", "a row has {} tokens, and the model has {} positions", t.longest, most);
  return most > 0 ? std::min(window, most) : window;
}

// One prompt of words at random, so that nothing of it is in the cache; once.
double LessonPlanner::prompt_speed() const {
  const std::lock_guard lock(mutex_);
  if (guess_ > 0) return guess_;
  const int64_t n = std::clamp<int64_t>(base_.model().context / 2, 8, 64);
  std::mt19937_64 random(std::random_device{}());
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(int32_t(random() % 256));
  const Json body = {{"prompt", ids}, {"max_tokens", 1}, {"temperature", 0}};
  const auto begin = std::chrono::steady_clock::now();
  const ApiResponse r = base_.service().answer({"POST", "/v1/completions", json_text(body), {}});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (r.status == 200) guess_ = double(n) / std::max(1e-6, took.count());
  return guess_;
}

LessonPlanner::Speed LessonPlanner::speed(const LessonBase& base) const {
  const std::vector<RunRecord> runs = read_records(runs_);
  for (auto r = runs.rbegin(); r != runs.rend(); ++r) {
    const auto weights = r->with_role("weights");
    const bool same = r->status.command == "train" && !weights.empty() &&
                      weights.front()->path == fs::absolute(base.weights).string();
    if (same && r->totals.seconds > 0 && r->totals.tokens > 0)
      return {double(r->totals.tokens) / r->totals.seconds, "run"};
  }
  return {prompt_speed() / kStepPerPrompt, "guess"};
}

Json LessonPlanner::plan(const Lesson& l, const LessonBase& base,
                         const ChildProgram& program) const {
  const int64_t window = window_of(l, base_);
  const Finished f = run_shortly(program, plan_words(l, base, window), kPlanLimit);
  const Json plans = parse_json_or_discard<Json>(f.out);
  if (!plans.is_object() || !plans.contains("plans")) {
    throw ApiError(422, "invalid_request_error", "nibble plan: " + last_line(f.err));
  }
  Json best = nullptr;  // the fastest that fits comes first
  for (const Json& p : plans["plans"]) {
    if (best.is_null() && p.value("fits", false)) best = p;
  }
  const RowTokens t = row_tokens(l, base_.model().require_tokenizer(), base_.model().style);
  const double mean = double(t.all) / double(std::max<size_t>(1, l.rows.size()));
  const double tokens = mean * double(l.batch_size) * double(l.steps);
  const Speed s = speed(base);
  Json j = {{"window", window},
            {"row_tokens", t.all},
            {"available_bytes", plans.value("available_bytes", uint64_t(0))},
            {"fits", !best.is_null()},
            {"memory", best},
            {"passes", passes_of(l)},
            {"steps", l.steps},
            {"lr", l.lr},
            {"batch_size", l.batch_size},
            {"tokens_per_second", s.tokens_per_second},
            {"basis", s.basis}};
  if (s.tokens_per_second > 0) {
    const size_t kept = l.keep == LessonKeep::prompts ? l.prompts.size() : 0;
    const double questions = double(std::min(l.rows.size(), kMostProbes) +
                                    std::min(kept, kMostProbes) + other_questions(l).size());
    const double at_gates = questions * kAsked * kGatesInAll;
    const double prompts = s.tokens_per_second * kStepPerPrompt * kGateSpeed;
    j["seconds"] = tokens / s.tokens_per_second + at_gates / prompts + kAround;
  }
  return j;
}

}  // namespace nibble
