// SPDX-License-Identifier: MIT
// nibble check: is this model, in this program, on this machine, sound?
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/command.h"
#include "data/records.h"
#include "eval/check_parts.h"
#include "runtime/output_files.h"

namespace nibble {
namespace {

ExitCode finish(const CheckOptions& o, const CheckReport& report, const std::string& model,
                const std::string& backend) {
  if (!o.json.empty()) report.write_json(o.json, model, backend);
  return report.passed() ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode run_check(const CheckOptions& given, Io& io) {
  CheckOptions o = given;
  const bool probes = !o.probes.file.empty();
  if (!o.finite && !o.kv && !o.paths && !o.needle && !o.replies && !probes) {
    o.finite = o.kv = o.paths = true;
  }
  CheckReport report(io.out);
  const TokenizerNeed need = o.needle || probes ? TokenizerNeed::required : TokenizerNeed::optional;
  const ModelPaths paths = resolve_model(o.runtime.model, need);
  for (const auto& output : {o.json, o.probes.report}) {
    refuse_replacing_input(output, paths, {o.haystack, o.probes.file, o.probes.baseline});
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
    const auto source = open_tensor_source(paths.weights);
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
  return finish(o, report, model, r.backend->name());
}

}  // namespace

Command check_command() {
  return make_command<CheckOptions>(
      "check", "Look for NaN and collapse, put probes, compare cache modes and execution paths",
      "Each check ends with a line PASS or FAIL and its figure; when one fails the exit code is "
      "1.\n"
      "--paths compares with the fp32 forward of the whole sequence: the cache and training's\n"
      "forward must agree to 1e-5, lossy paths within --max-rel and --min-cosine at every layer. "
      "A\n"
      "model on a GPU is held against the same file on the CPU: in fp32 within 2.5e-5, times a\n"
      "quarter of the layers.",
      run_check);
}

}  // namespace nibble
