// SPDX-License-Identifier: MIT
#include "eval/checks.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "convert/checkpoint_model.h"
#include "data/records.h"
#include "eval/check_parts.h"
#include "runtime/output_files.h"
#include "runtime/replicas.h"

namespace nibble {
namespace {

bool finish(const CheckOptions& o, const CheckReport& report, const std::string& model,
            const std::string& backend) {
  const CheckReportInfo info{model, o.against.string(), backend};
  if (!o.json.empty()) report.write_json(o.json, info);
  if (!o.html.empty()) report.write_html(o.html, info);
  return report.passed();
}

}  // namespace

bool run_checks(const CheckOptions& given, std::ostream& out) {
  CheckOptions o = given;
  const bool probes = !o.probes.file.empty();
  const bool measures = !o.texts.empty() || !o.choices.empty();
  if (!o.against.empty() && !measures) {
    throw_usage("--against compares on texts or questions: add --text or --choices");
  }
  if (!o.finite && !o.kv && !o.paths && !o.needle && !o.replies && !probes && !measures) {
    o.finite = o.kv = o.paths = true;
  }
  CheckReport report(out);
  const bool words = o.needle || probes || !o.choices.empty();
  const TokenizerNeed need = words ? TokenizerNeed::required : TokenizerNeed::optional;
  const ModelPaths paths = resolve_model(o.runtime.model, need);
  std::optional<RuntimeOptions> base_options;
  std::vector<std::filesystem::path> inputs = {o.haystack, o.probes.file, o.probes.baseline};
  inputs.insert(inputs.end(), o.texts.begin(), o.texts.end());
  inputs.insert(inputs.end(), o.choices.begin(), o.choices.end());
  if (!o.against.empty()) {
    base_options = o.runtime;
    base_options->model = {};
    base_options->model.model = o.against;
    resolve_model(base_options->model, TokenizerNeed::optional);
    inputs.push_back(o.against);
  }
  for (const auto& output : {o.json, o.html, o.probes.report}) {
    check_output_file(output, o.force ? Overwrite::allow : Overwrite::refuse, paths, inputs);
  }
  refuse_same_output({{"--json", o.json},
                      {"--html", o.html},
                      {"--probe-report", o.probes.report},
                      {"--probe-data", o.probes.data}});
  if (!o.probes.data.empty()) {
    if (o.probes.data.extension() != ".jsonl") {
      throw_usage("--probe-data {}: training data of this kind is named .jsonl",
                  o.probes.data.string());
    }
    refuse_existing(o.probes.data);
  }
  const std::string model = paths.weights.string();
  if (o.finite) {
    const auto source = open_weights(paths.weights);
    const std::vector<std::string> bad = find_bad_scales(*source);
    for (const std::string& line : bad) report.note("  " + line);
    if (!bad.empty()) {
      report.add("finite", false,
                 fmt::format("the scales of {} tensors are damaged, no further check was run; {}",
                             bad.size(), bad.front()),
                 {{"place", bad.front()}});
      return finish(o, report, model, "");
    }
  }
  RuntimeOptions runtime = o.runtime;
  if (o.finite) runtime.not_finite = NotFinite::accept;  // to say all there is to say
  const std::vector<Runtime> replicas = open_replicas(runtime, need);
  const Runtime& r = replicas.front();
  const std::vector<CheckPrompt> prompts = check_prompts(o, r);
  if (o.finite) check_finite(o, r, prompts, report);
  if (o.kv) check_kv(o, r, prompts, report);
  if (o.paths) check_paths(o, r, prompts, report);
  if (o.replies) check_replies(o, replicas, prompts, report);
  if (o.needle) check_needle(o, r, report);
  if (probes) check_probes(o, replicas, report);
  std::vector<Runtime> base;
  if (base_options) base = open_beside(replicas, *base_options, TokenizerNeed::optional);
  if (!o.texts.empty()) check_text(o, replicas, base, report);
  if (!o.choices.empty()) check_choices(o, replicas, base, report);
  return finish(o, report, model, r.backend->name());
}

}  // namespace nibble
