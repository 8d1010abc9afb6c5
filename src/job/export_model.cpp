// SPDX-License-Identifier: MIT
#include "job/export_model.h"

#include <algorithm>
#include <cmath>

#include "convert/convert.h"
#include "core/file.h"
#include "core/thread_pool.h"
#include "formats/gguf/encode_blocks.h"
#include "model/params.h"
#include "runlog/run_series.h"
#include "runtime/model_output.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

// config.json and the tokenizer's files beside the weights.
void write_companions(const TrainInputs& in, const Destination& d, StagedOutput& staged,
                      bool untied) {
  const OutputQuantization own;  // nibble's names for what is packed, where the form changes
  const bool same = keeps_form(*in.source, d.container);
  write_model_config(in.paths.config, staged,
                     untied && in.config.tied && d.container != Container::dat, d.overwrite,
                     same ? nullptr : &own);
  // The tokenizer of this run, whatever its name; another one may lie beside config.json.
  const fs::path tokenizer = d.directory / "tokenizer.json";
  if (!same_file(in.paths.tokenizer, tokenizer)) {
    staged.companion("tokenizer.json", tokenizer_text(in.paths.tokenizer), d.overwrite);
  }
  copy_companions(place_of(in.paths.tokenizer), staged, d.overwrite, {"tokenizer.json"});
  const fs::path place = place_of(in.paths.config);
  const fs::path generation = d.directory / "generation_config.json";
  const std::string name = generation.filename().string();
  const auto text = companion_text(place, name);
  if (text && !same_file(place / name, generation)) {
    staged.companion(name, *text, d.overwrite);
  }
}

// Rows that no block of NVFP4 in a GGUF can hold: they become wider numbers.
bool has_other_rows(const TensorSource& source) {
  const WeightIndex index(source);
  return std::ranges::any_of(index.tensors(), [](const LogicalTensor& t) {
    return is_linear_name(t.name) && t.cols % kGgufNvfp4Elements != 0;
  });
}

}  // namespace

Destination check_destination(const fs::path& out, Overwrite overwrite, const TrainInputs& in,
                              const std::vector<fs::path>& also_read) {
  Destination d;
  d.path = out;
  d.container = container_for(out);
  d.overwrite = overwrite;
  refuse_replacing_weights(*in.source, out, d.container);
  refuse_replacing_input(out, in.paths, also_read);
  d.directory = check_output(out, d.container, d.overwrite).directory;
  if (d.container != Container::gguf) {
    refuse_other_model(in.paths.config, d.directory, d.overwrite);
  }
  check_writable(d.directory);
  d.lock = lock_output(out);
  return d;
}

bool file_is_coarser(const TensorSource& source, const TrainSettings& s, Container container) {
  if (container == Container::gguf && s.recipe == Recipe::nvfp4 && has_other_rows(source)) {
    return true;
  }
  if (s.recipe == Recipe::nvfp4 && s.head() == Recipe::nvfp4) return false;
  if (!keeps_form(source, container)) return false;
  const WeightIndex index(source);
  return std::ranges::any_of(index.tensors(), [](const LogicalTensor& t) { return t.packed(); });
}

uint64_t export_bytes(const TrainInputs& in, const TrainSettings& s, const Destination& d) {
  constexpr uint64_t kCompanions = 32 << 20;
  // The form of the input, or another: then every parameter takes two bytes, in a .dat half of one
  // and its scale where it is quantised; a margin covers what stays wider.
  const bool same = keeps_form(*in.source, d.container);
  uint64_t bytes = in.source->stored_bytes();
  if (!same) {
    uint64_t values = 0;
    for (const ParamSpec& p : parameter_table(in.config)) {
      uint64_t n = 1;
      for (const int64_t size : p.shape) n *= uint64_t(size);
      values += n;
    }
    bytes = 2 * values;
  }
  if (s.untie || !same) bytes += 2 * uint64_t(in.config.V) * uint64_t(in.config.C);
  return bytes + bytes / 50 + kCompanions;
}

ExportSummary export_model(const TrainInputs& in, TrainState& state, const Destination& d,
                           int32_t threads, const ModelOrigin& origin) {
  Config stored = in.config;
  stored.tied = state.config().tied;
  const OutputTexts texts{in.paths.config, in.paths.tokenizer, origin};
  const GgufMetadata metadata = output_metadata(d.container, stored, texts);
  StagedOutput staged(d.path, d.container, d.overwrite);
  ThreadPool pool(threads > 0 ? threads : default_thread_count());
  const ExportSummary done =
      export_weights(*in.source, state, in.config, staged.weights(), pool, metadata);
  if (d.container != Container::gguf) write_companions(in, d, staged, !state.config().tied);
  complete_output(staged, d.container, texts, metadata, d.overwrite);
  staged.publish();
  return done;
}

ModelOrigin origin_of_run(const RunRecord& run, std::string name, std::string parent) {
  ModelOrigin origin;
  origin.name = std::move(name);
  origin.parent = std::move(parent);
  origin.trained = true;
  const StepRecord& last = run.status.last;
  std::string fact = fmt::format("{} steps", last.step);
  if (std::isfinite(last.loss)) fact += fmt::format(", loss of the last {:.4f}", last.loss);
  origin.facts.push_back(fact);
  for (const RunFile& f : run.files) {
    if (f.role == "output") continue;
    // A name, not a path: whose machine it was is nobody's business.
    const std::string file = fs::path(f.path).filename().string();
    origin.files.push_back({f.role, file, f.sha256});
  }
  if (run.gates.empty()) return origin;
  for (const GateScore& g : run.gates.back().groups) {
    origin.scores.push_back(fmt::format("{}: {} of {} probes after step {}", g.group, g.passed,
                                        g.total, run.gates.back().step));
  }
  return origin;
}

ModelOrigin trained_origin(RunRecorder& recorder, std::string name, std::string parent,
                           int64_t steps) {
  for (const RunFile& f : recorder.record().files) {
    if (f.role != "output") recorder.hash_of(f.role);  // fills it in
  }
  RunRecord run = recorder.record();
  run.gates = read_gates(recorder.directory());
  run.status.last = {.step = steps, .loss = std::nan("")};
  return origin_of_run(run, std::move(name), std::move(parent));
}

}  // namespace nibble
