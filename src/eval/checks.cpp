// SPDX-License-Identifier: MIT
#include "eval/checks.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "data/records.h"
#include "eval/check_parts.h"
#include "model/gguf_model.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

bool finish(const CheckOptions& o, const CheckReport& report, const std::string& model,
            const std::string& backend) {
  if (!o.json.empty()) report.write_json(o.json, model, backend);
  return report.passed();
}

}  // namespace

bool run_checks(const CheckOptions& given, std::ostream& out) {
  CheckOptions o = given;
  const bool probes = !o.probes.file.empty();
  if (!o.finite && !o.kv && !o.paths && !o.needle && !o.replies && !probes && o.texts.empty()) {
    o.finite = o.kv = o.paths = true;
  }
  CheckReport report(out);
  const TokenizerNeed need = o.needle || probes ? TokenizerNeed::required : TokenizerNeed::optional;
  const ModelPaths paths = resolve_model(o.runtime.model, need);
  for (const auto& output : {o.json, o.probes.report}) {
    check_output_file(output, o.force ? Overwrite::allow : Overwrite::refuse, paths,
                      {o.haystack, o.probes.file, o.probes.baseline});
  }
  refuse_same_output(
      {{"--json", o.json}, {"--probe-report", o.probes.report}, {"--probe-data", o.probes.data}});
  if (!o.probes.data.empty()) {
    if (o.probes.data.extension() != ".jsonl") {
      throw_usage("--probe-data {}: training data of this kind is named .jsonl",
                  o.probes.data.string());
    }
    refuse_existing(o.probes.data);
  }
  const std::string model = paths.weights.string();
  if (o.finite) {
    const auto source = open_model_source(paths.weights);
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
  const Runtime r = open_runtime(o.runtime, need);
  const std::vector<CheckPrompt> prompts = check_prompts(o, r);
  if (o.finite) check_finite(o, r, prompts, report);
  if (o.kv) check_kv(o, r, prompts, report);
  if (o.paths) check_paths(o, r, prompts, report);
  if (o.replies) check_replies(o, r, prompts, report);
  if (o.needle) check_needle(o, r, report);
  if (probes) check_probes(o, r, report);
  if (!o.texts.empty()) check_text(o, r, report);
  return finish(o, report, model, r.backend->name());
}

}  // namespace nibble
