// SPDX-License-Identifier: MIT
// check --probes: questions with rules, scores by group, thresholds, before and after.
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/progress.h"
#include "data/records.h"
#include "eval/check_parts.h"
#include "eval/probe_ask.h"
#include "eval/probe_file.h"
#include "eval/probe_report.h"
#include "runtime/model_template.h"

namespace nibble {
namespace {

constexpr int64_t kDialogues = 10;  // in the report

std::string one_line(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\\n");
  }
  return text;
}

void show(const ProbeResult& r, CheckReport& report) {
  report.note(fmt::format("{} {}\n  prompt {}\n  reply  {}{}", r.passed() ? "ok    " : "FAILED",
                          r.probe->id, one_line(prompt_text(r.messages)), one_line(r.reply.text),
                          r.passed() ? "" : "\n  rule   " + one_line(r.problem)));
}

}  // namespace

void check_probes(const CheckOptions& o, Replicas replicas, CheckReport& report) {
  const Runtime& r = replicas.front();
  const ProbeFile file = read_probes(o.probes.file);
  std::optional<ProbeBaseline> baseline;
  if (!o.probes.baseline.empty()) baseline = read_probe_report(o.probes.baseline);
  std::vector<MinScore> wanted;
  if (!o.probes.min_score.empty()) wanted = parse_min_scores(o.probes.min_score);
  const std::vector<const Probe*> probes = sample_probes(file.set, o.probes.most);
  const ProbeScores* before = baseline ? &baseline->scores : nullptr;
  {
    std::vector<ProbeResult> unanswered;
    for (const Probe* p : probes) unanswered.push_back({p, {}, {}});
    check_min_scores(wanted, score_probes(unanswered), before);
  }
  if (baseline && baseline->hash != file.hash) {
    log_warning("{} was made with another probe file: the scores are not of the same questions",
                o.probes.baseline.string());
  }

  ProbeAskOptions ask;
  ask.style = choose_template({}, r.paths.tokenizer);
  ask.rules = o.probes.rules;
  ask.max_tokens = o.max_tokens;
  ask.stop_ids = r.stop_ids();
  ask.sample = o.sample;
  EngineOptions engine_options = r.engine_options(o.cache);
  ProbeShape shape =
      probe_shape(probes, r.require_tokenizer(), ask, r.model.config, engine_options.cache);
  if (o.cache.context) shape.context = *o.cache.context;
  const auto n = int64_t(replicas.size());
  shape.sequences = std::min(shape.sequences, (int64_t(probes.size()) + n - 1) / n);
  engine_options = r.engine_options(o.cache, shape.sequences);
  engine_options.context = shape.context;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<BatchEngine>> engines;
  std::vector<BatchEngine*> all;
  for (const Runtime& replica : replicas) {
    engines.push_back(std::make_unique<BatchEngine>(*replica.backend, replica.model, engine_options,
                                                    shape.sequences));
    all.push_back(engines.back().get());
  }
  Progress progress("probes", uint64_t(probes.size()), "probes");
  int64_t told = 0;
  const std::vector<ProbeResult> results =
      ask_probes(all, r.require_tokenizer(), probes, ask, [&](int64_t done) {
        progress.advance(uint64_t(done - told));
        told = done;
        return true;
      });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const ProbeScores scores = score_probes(results);
  for (const ProbeResult& result : results) {
    if (o.probes.show == ProbeShow::all ||
        (o.probes.show == ProbeShow::failures && !result.passed())) {
      show(result, report);
    }
  }
  std::string table = score_table(scores, before);
  table.pop_back();
  report.note(table);
  const std::vector<std::string> low = low_scores(scores, wanted, before);
  // Without a threshold every probe must pass.
  const bool passed = wanted.empty() ? scores.all.passed == scores.all.total : low.empty();
  std::string figure =
      fmt::format("{} of {} passed ({:.1f} %) in {:.1f} s, {} at a time", scores.all.passed,
                  scores.all.total, scores.all.percent(), seconds, shape.sequences * n);
  for (const std::string& line : low) figure += "; " + line;
  if (!o.probes.report.empty()) {
    write_probe_report(
        o.probes.report,
        {file.set.name, file.hash, r.paths.weights.string(), r.backend->name(),
         o.probes.rules == WhichRules::base ? "base" : "target", passed, low, seconds},
        scores, results);
  }
  if (!o.probes.data.empty()) {
    const std::string rows = passed_as_data(results);
    if (rows.empty()) {
      log_warning("no reply passed: {} is not written", o.probes.data.string());
    } else {
      write_new_file(o.probes.data, rows);
    }
  }
  nlohmann::json details = {
      {"probes", file.set.name},
      {"probes_hash", file.hash},
      {"scores", scores_json(scores)},
      {"below_threshold", low},
      {"dialogues", dialogues_json(results, baseline ? &*baseline : nullptr, kDialogues)}};
  if (before) details["before"] = scores_json(*before);
  report.add("probes", passed, figure, std::move(details));
}

}  // namespace nibble
