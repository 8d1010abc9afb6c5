// SPDX-License-Identifier: MIT
#include "job/export_model.h"

#include <algorithm>

#include "core/file.h"
#include "core/thread_pool.h"
#include "runtime/model_texts.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

// config.json and the tokenizer's files beside the weights.
void write_companions(const TrainInputs& in, const Destination& d, bool untied) {
  write_model_config(in.paths.config, d.directory,
                     untied && in.config.tied && d.container != Container::dat, d.overwrite);
  // The tokenizer of this run, whatever its name; another one may lie beside config.json.
  const fs::path tokenizer = d.directory / "tokenizer.json";
  if (!same_file(in.paths.tokenizer, tokenizer)) {
    write_companion(tokenizer_text(in.paths.tokenizer), tokenizer, d.overwrite);
  }
  copy_companions(place_of(in.paths.tokenizer), d.directory, d.overwrite, {"tokenizer.json"});
  const fs::path place = place_of(in.paths.config);
  const fs::path generation = d.directory / "generation_config.json";
  const auto text = companion_text(place, generation.filename().string());
  if (text && !same_file(place / generation.filename(), generation)) {
    write_companion(*text, generation, d.overwrite);
  }
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
  refuse_other_model(in.paths.config, d.directory, d.overwrite);
  check_writable(d.directory);
  return d;
}

bool file_is_coarser(const TensorSource& source, const TrainSettings& s, Container container) {
  if (s.recipe == Recipe::nvfp4 && s.head() == Recipe::nvfp4) return false;
  if ((container == Container::dat) != (source.format() == "dat")) return false;
  const WeightIndex index(source);
  return std::ranges::any_of(index.tensors(), [](const LogicalTensor& t) { return t.packed(); });
}

ExportSummary export_model(const TrainInputs& in, TrainState& state, const Destination& d,
                           int32_t threads) {
  fs::create_directories(d.directory);
  ThreadPool pool(threads > 0 ? threads : default_thread_count());
  const ExportSummary done = export_weights(*in.source, state, in.config, d.path, pool);
  if (d.container == Container::directory) remove_stale_weights(d.path);
  write_companions(in, d, !state.config().tied);
  return done;
}

}  // namespace nibble
