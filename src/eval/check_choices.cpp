// SPDX-License-Identifier: MIT
// check --choices: how often the right one of several continuations is the most likely, before and
// after.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "eval/check_parts.h"
#include "eval/damage/choice_scores.h"

namespace nibble {
namespace {

nlohmann::json accuracy_json(const Score& a) {
  return {{"passed", a.passed},
          {"total", a.total},
          {"percent", a.percent()},
          {"standard_error", a.standard_error()}};
}

nlohmann::json choice_score_json(const ChoiceScore& s) {
  return {{"accuracy", accuracy_json(s.plain)},
          {"accuracy_by_length", accuracy_json(s.by_length)},
          {"mean_log_likelihood", json_number(s.mean_log_likelihood)}};
}

std::string percent(const Score& a) {
  return fmt::format("{:.2f} % +- {:.2f}", a.percent(), a.standard_error());
}

std::string figure_of(const ChoiceSet& set, const ChoiceScore& s) {
  std::string text = percent(s.plain);
  if (set.form == ChoiceForm::choices) text += fmt::format(" (by length {})", percent(s.by_length));
  return text;
}

bool finite(std::span<const ChoiceResult> results) {
  return std::ranges::all_of(results, [](const ChoiceResult& r) {
    return std::ranges::all_of(r.log_likelihood, [](double l) { return std::isfinite(l); });
  });
}

struct Scored {
  std::vector<ChoiceResult> results;
  ChoiceScore score;
};
Scored score(const CheckOptions& o, Replicas replicas, const ChoiceSet& set,
             std::span<const EncodedQuestion> encoded) {
  Scored s;
  s.results = score_choices(text_readers(o, replicas), set, encoded);
  s.score = score_of(set, encoded, s.results);
  return s;
}

void check_file(const CheckOptions& o, Replicas replicas, Replicas base,
                const std::filesystem::path& path, CheckReport& report) {
  const ChoiceFile file = read_choices(path, o.choice_max);
  const ChoiceSet& set = file.set;
  const auto encoded = encode_questions(set, replicas.front().require_tokenizer());
  if (!base.empty() && base[0].tokenizer) {
    const auto theirs = encode_questions(set, *base[0].tokenizer);
    for (size_t i = 0; i < encoded.size(); ++i) {
      if (encoded[i].prompt != theirs[i].prompt || encoded[i].choices != theirs[i].choices) {
        throw_usage("{}: the tokenizers of the model and of --against make different tokens of it",
                    path.string());
      }
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const Scored now = score(o, replicas, set, encoded);
  std::optional<Scored> before;
  if (!base.empty()) before = score(o, base, set, encoded);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const std::string name = path.filename().string();
  nlohmann::json j = {{"file", name},
                      {"hash", file.hash},
                      {"form", set.form == ChoiceForm::choices ? "choices" : "last word"},
                      {"questions", set.questions.size()},
                      {"tokens", now.score.tokens},
                      {"seconds", seconds}};
  j.update(choice_score_json(now.score));
  bool passed = finite(now.results);
  std::string figure = fmt::format("{}: {}", name, figure_of(set, now.score));
  if (before) {
    const ChoiceChanges c = changes_of(set, before->results, now.results);
    j["base"] = choice_score_json(before->score);
    j["changed"] = c.changed, j["lost"] = c.lost, j["won"] = c.won;
    figure += fmt::format(", base {}; {} answers changed, {} lost, {} won",
                          figure_of(set, before->score), c.changed, c.lost, c.won);
    const Score &was = before->score.plain, &is = now.score.plain;
    const double drop = was.percent() - is.percent();
    if (o.max_drop && drop > *o.max_drop * was.standard_error() + 1e-12) {
      passed = false;
      figure +=
          fmt::format("; {:.2f} points lost, more than {:g} standard errors", drop, *o.max_drop);
    }
    passed = passed && finite(before->results);
  }
  figure += fmt::format("; {} questions, {} tokens, {:.1f} s", set.questions.size(),
                        now.score.tokens, seconds);
  j["results"] = nlohmann::json::array();
  for (size_t i = 0; i < set.questions.size(); ++i) {
    nlohmann::json one = {{"id", set.questions[i].id},
                          {"right", is_right(set, i, now.results[i])},
                          {"best", now.results[i].best},
                          {"log_likelihood", nlohmann::json::array()}};
    for (const double l : now.results[i].log_likelihood) {
      one["log_likelihood"].push_back(json_number(l));
    }
    if (before) {
      one["base_right"] = is_right(set, i, before->results[i]);
      one["base_best"] = before->results[i].best;
    }
    j["results"].push_back(std::move(one));
  }
  report.add("choices", passed, figure, std::move(j));
}

}  // namespace

void check_choices(const CheckOptions& o, Replicas replicas, Replicas base, CheckReport& report) {
  for (const std::string& file : o.choices) check_file(o, replicas, base, file, report);
}

}  // namespace nibble
