// SPDX-License-Identifier: MIT
// nibble convert: one weight file into another.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ostream>

#include "apps/command.h"
#include "apps/options/dtype_option.h"
#include "apps/options/work_options.h"
#include "convert/checkpoint_model.h"
#include "convert/convert.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/text/visible.h"
#include "inspect/input_ranges.h"
#include "inspect/inspect.h"
#include "job/export_model.h"
#include "model/gguf_model.h"
#include "runlog/run_lineage.h"
#include "runtime/model_output.h"
#include "runtime/model_paths.h"
#include "runtime/model_texts.h"
#include "runtime/output_files.h"
#include "runtime/runtime.h"
#include "runtime/staged_output.h"
#include "runtime/weights_named.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::vector<std::pair<std::string, std::optional<ModelFormat>>> optional_formats() {
  std::vector<std::pair<std::string, std::optional<ModelFormat>>> names;
  for (const auto& [name, format] : format_names()) names.emplace_back(name, format);
  return names;
}

struct ConvertOptions {
  fs::path in, out, config, calibrate, runs_dir = "runs";
  std::optional<ModelFormat> to;
  std::optional<Packing> quant;
  std::string quantize;
  std::optional<ScaleRule> scale_rule;
  std::optional<ScaleLevels> scales;
  std::optional<DType> dtype;
  std::optional<ByteSize> max_shard_size;
  bool copy_config = false, force = false;
  WorkOptions work;

  void visit_fields(Fields& f) {
    f.add(in, {.flag = "IN",
               .help = "A Hugging Face directory, a .safetensors, a .gguf or a .dat file, or a "
                       "checkpoint",
               .aliases = {"--model"},
               .required = true});
    f.add(out, {.flag = "OUT",
                .help = "What to write: its name says what, .dat, .safetensors, .gguf, or a "
                        "directory",
                .aliases = {"--out"},
                .required = true});
    f.add_choice<std::optional<ModelFormat>>(
        to, {.flag = "--to", .help = "The format, where the name of OUT does not say it"},
        optional_formats());
    f.add_choice<std::optional<Packing>>(
        quant,
        {.flag = "--quant",
         .help = "nvfp4: linear layers and the head become NVFP4, what is NVFP4 already is copied; "
                 "none: NVFP4 is expanded; the others are blocks of a GGUF. Default: what is NVFP4 "
                 "stays so, in a directory none"},
        {{"none", Packing::none},
         {"nvfp4", Packing::nvfp4},
         {"q8_0", Packing::q8_0},
         {"q4_0", Packing::q4_0},
         {"mxfp4", Packing::mxfp4}});
    f.add(quantize, {.flag = "--quantize",
                     .help = "Quantise the matrices whose name this regular expression finds, "
                             "instead of linear layers and the head",
                     .value = "REGEX"});
    f.add_choice<std::optional<ScaleRule>>(
        scale_rule,
        {.flag = "--scale-rule", .help = "How a block's scale is chosen; default four-over-six"},
        {{"four-over-six", ScaleRule::four_over_six},
         {"absmax", ScaleRule::absmax},
         {"search", ScaleRule::search},
         {"torchao", ScaleRule::torchao}});
    f.add_choice<std::optional<ScaleLevels>>(
        scales,
        {.flag = "--scales",
         .help =
             "two-level adds one scale per tensor: less error, unknown to older readers of a "
             ".dat. Default: two-level in a .gguf (not in the feed-forward layers of a qwen2) and "
             "for other programs, else single-level"},
        {{"single-level", ScaleLevels::single}, {"two-level", ScaleLevels::two}});
    f.add_choice(dtype,
                 {.flag = "--dtype",
                  .help = "Type of raw tensors; by default they keep theirs, in a new .dat fp16. "
                          "Expanded NVFP4: fp16 in a .dat, else bf16, fp32 if two-level"},
                 dtype_names());
    f.add(max_shard_size,
          {.flag = "--max-shard-size",
           .help = "Of a directory: weights that are more than this become several files with an "
                   "index; default 5GB",
           .value = "SIZE",
           .aliases = {"--shard-size"}});
    f.add(config, {.flag = "--config",
                   .help = "config.json, when it does not lie beside the input",
                   .value = "FILE"});
    f.add(calibrate,
          {.flag = "--calibrate",
           .help = "With --to compressed-tensors or modelopt: run the model on this text, "
                   "so that inputs of linear layers are quantised, too, by the scales "
                   "found there (W4A4)",
           .value = "FILE"});
    f.add(copy_config, {.flag = "--copy-config",
                        .help = "Copy config.json and the tokenizer beside a .dat or .safetensors, "
                                "too, when other files lie there"});
    f.add(runs_dir, {.flag = "--runs-dir",
                     .help = "Where the run that trained IN is looked for: what it read and scored "
                             "goes into the card of a directory and the keys of a GGUF",
                     .value = "DIR"});
    f.add(force, {.flag = "--force", .help = "Replace what exists"});
    work.visit_fields(f);
  }
};

ScaleRule rule_of(const ConvertOptions& o) {
  return o.scale_rule.value_or(ScaleRule::four_over_six);
}
bool is_foreign(const FormatRow& row) { return row.nvfp4 != Nvfp4Names::nibble; }
ScaleLevels levels_of(const ConvertOptions& o) {
  // Small weights in one level have scales near the end of E4M3; others have a place for the other.
  const FormatRow& row = format_for(o.out, o.to);
  const bool others = row.container == Container::gguf || is_foreign(row);
  return o.scales.value_or(others ? ScaleLevels::two : ScaleLevels::single);
}
Packing packing_of(const ConvertOptions& o) {
  const FormatRow& row = format_for(o.out, o.to);
  if (is_foreign(row)) {
    if (o.quant.value_or(Packing::nvfp4) == Packing::nvfp4) return Packing::nvfp4;
    throw_usage("--to {} is about NVFP4: leave --quant out, or name --to hf", row.name);
  }
  return o.quant.value_or(row.container == Container::directory ? Packing::none : Packing::stored);
}

constexpr int64_t kCalibrationWindow = 256;  // tokens that are read together

std::map<std::string, float> calibrated(const ConvertOptions& o) {
  RuntimeOptions options;
  options.model.model = checkpoint_paths(o.in) ? o.in : weights_named(o.in);
  options.model.config = o.config;
  options.threads = o.work.threads;
  options.activations = ActivationsChoice::bf16;
  Runtime runtime = open_runtime(options, TokenizerNeed::required);
  const std::vector<int32_t> ids = runtime.require_tokenizer().encode(read_text_file(o.calibrate));
  if (ids.empty()) throw_format("{}: no tokens in it", o.calibrate.string());
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  return input_maxima(runtime, wide, kCalibrationWindow);
}

struct Input {
  std::unique_ptr<TensorSource> source;
  fs::path weights;    // a file or a directory
  fs::path directory;  // where the companions are, or the GGUF that has them in itself
  fs::path config_file, tokenizer_file;
  std::optional<Config> config;
};

Input open_input(const ConvertOptions& o) {
  Input input;
  const std::optional<ModelPaths> checkpoint = checkpoint_paths(o.in);
  input.weights = checkpoint ? checkpoint->weights : weights_named(o.in);
  input.source = open_weights(input.weights);
  input.directory = place_of(checkpoint ? checkpoint->config : input.weights);
  if (checkpoint && o.config.empty()) {
    input.config_file = checkpoint->config;
  } else if (!o.config.empty()) {
    input.config_file = o.config;
  } else if (companion_text(input.directory, "config.json")) {
    input.config_file =
        fs::is_directory(input.directory) ? input.directory / "config.json" : input.directory;
  }
  if (!input.config_file.empty()) input.config = load_config(input.config_file);
  if (companion_text(input.directory, "tokenizer.json")) {
    input.tokenizer_file =
        fs::is_directory(input.directory) ? input.directory / "tokenizer.json" : input.directory;
  }
  return input;
}

ModelOrigin origin_of(const ConvertOptions& o, const Input& input) {
  ModelOrigin origin;
  if (!input.config) return origin;
  const std::vector<RunRecord> runs = read_records(o.runs_dir);
  for (const RunRecord& run : runs) {
    const auto is_input = [&](const RunFile& f) {
      return f.role == "output" &&
             (same_file(f.path, input.weights) || same_file(f.path, input.directory));
    };
    if (std::ranges::none_of(run.files, is_input)) continue;
    const auto parent = std::ranges::find(run.files, "weights", &RunFile::role);
    fs::path weights = parent == run.files.end() ? fs::path() : fs::path(parent->path);
    // The files of a directory are all called alike: it is the directory that has the name.
    if (weights.extension() == ".safetensors") weights = weights.parent_path();
    origin =
        origin_of_run(run, name_of_output(o.out), weights.empty() ? "" : name_of_output(weights));
    const Lineage before = lineage_of(run, runs);
    if (!before.ancestors.empty()) {
      origin.facts.push_back(
          fmt::format("runs: {}, {}", run.name, fmt::join(before.ancestors, ", ")));
    }
    return origin;
  }
  origin.parent = model_name(input.weights, input.config_file);
  // A conversion changes the form, not the model: a GGUF that has a name keeps it.
  origin.name = looks_like_gguf(input.config_file) ? origin.parent : name_of_output(o.out);
  return origin;
}

void refuse_same(const ConvertOptions& o, const Input& input, Container container) {
  refuse_replacing_weights(*input.source, o.out, container);
  refuse_overwrite_of_input(input.weights, o.out);
}

void print_summary(const ConvertOptions& o, ScaleLevels levels, const ConvertSummary& s,
                   double seconds, Io& io) {
  for (const std::string& note : s.notes) io.out << "note: " << note << "\n";
  if (s.head_made) io.out << "note: the tied head is stored as lm_head.weight\n";
  if (is_foreign(format_for(o.out, o.to))) {
    io.out << fmt::format(
        "one global scale for q, k, v and for gate, up: {} codes changed, {} scales of blocks\n",
        s.changed_codes, s.changed_scales);
  }
  if (s.quantised == 0 && (o.scale_rule || o.scales)) {
    io.out << "note: --scale-rule and --scales had nothing to do: no tensor was quantised, what is "
              "NVFP4 already is copied\n";
  }
  if (s.rounded > 0) {
    io.out << fmt::format("note: {} raw values were rounded to their new type\n", s.rounded);
  }
  io.out << fmt::format("tensors: {} copied, {} cast, {} quantised, {} expanded\n", s.copied,
                        s.cast, s.quantised, s.dequantised);
  if (s.quantised > 0) {
    const std::string how =
        packing_of(o) == Packing::nvfp4
            ? fmt::format("{}, {}", scale_rule_name(rule_of(o)),
                          levels == ScaleLevels::two ? "two-level" : "single-level")
            : "in blocks";
    io.out << fmt::format("quantisation error: relative RMS {:.4f} %, largest {:.6g} ({})\n",
                          s.error.relative_rms() * 100, s.error.max_abs_error, how);
  }
  io.out << fmt::format("{}: {} entries, {} payload bytes ({}), {:.1f} s\n", o.out.string(),
                        s.entries, s.payload_bytes, format_bytes(s.payload_bytes), seconds);
}

// What `nibble inspect` would say of a model that was written: its names and shapes against the
// config beside it, and the values that were seen on the way.
std::vector<std::string> problems_of(const fs::path& out, Config config, const ConvertSummary& s,
                                     ThreadPool& pool) {
  if (s.untied) config.tied = false;
  InspectSettings headers;
  headers.payload = false;
  headers.config = &config;
  InspectReport report = inspect_weights(*open_model_source(out), headers, pool);
  std::vector<std::string> problems = std::move(report.problems);
  problems.insert(problems.end(), s.damage.begin(), s.damage.end());
  return problems;
}

ExitCode run_convert(const ConvertOptions& o, Io& io) {
  const auto start = std::chrono::steady_clock::now();
  const Packing packing = packing_of(o);
  if (packing == Packing::none && !o.quantize.empty()) {
    throw_usage("--quantize says what to quantise, and --quant none says nothing is");
  }
  if (packing != Packing::nvfp4 && (o.scale_rule || o.scales)) {
    throw_usage("--scale-rule and --scales are about --quant nvfp4");
  }
  const Input input = open_input(o);
  ConvertSettings settings;
  const FormatRow& format = format_for(o.out, o.to);
  settings.container = format.container;
  settings.names = format.nvfp4;
  if (!o.calibrate.empty() && !is_foreign(format)) {
    throw_usage("--calibrate is about --to compressed-tensors and --to modelopt");
  }
  settings.packing = packing;
  settings.quantize = o.quantize;
  settings.rule = rule_of(o);
  settings.levels = levels_of(o);
  settings.dtype = o.dtype;
  if (o.max_shard_size) {
    if (settings.container != Container::directory) {
      throw_usage("--max-shard-size is about directories, and {} is one file", o.out.string());
    }
    settings.max_shard_bytes = o.max_shard_size->bytes;
  }
  refuse_same(o, input, settings.container);
  const Overwrite overwrite = o.force ? Overwrite::allow : Overwrite::refuse;
  const OutputPlace place = check_output(o.out, settings.container, overwrite);
  const bool directory = settings.container == Container::directory;
  const bool gguf = settings.container == Container::gguf;
  if ((directory || gguf) && !input.config) {
    throw_format("no config.json beside {}: a {} needs one, give it with --config", o.in.string(),
                 gguf ? "GGUF" : "model directory");
  }
  const bool with_companions = !gguf && (directory || place.fresh || o.copy_config);
  if (with_companions || gguf) refuse_companions_from_elsewhere(input.directory);
  if (with_companions && !input.config_file.empty()) {
    refuse_other_model(input.config_file, place.directory, overwrite);
  }
  ThreadPool pool(o.work.thread_count());
  log_info("{}", input.source->describe());
  log_debug("convert: {} threads", pool.size());

  OutputTexts texts{input.config_file, input.tokenizer_file, origin_of(o, input)};
  if (gguf) settings.metadata = output_metadata(settings.container, *input.config, texts);
  if (!o.calibrate.empty()) settings.input_maxima = calibrated(o);
  const FileLock lock = lock_output(o.out);
  StagedOutput staged(o.out, settings.container, overwrite);
  const Config* config = input.config ? &*input.config : nullptr;
  const ConvertSummary summary =
      convert_weights(*input.source, config, staged.weights(), settings, pool);
  if (with_companions) {
    if (!input.config_file.empty()) {
      const OutputQuantization quantization{settings.names, summary.dense_modules,
                                            summary.input_scales};
      write_model_config(input.config_file, staged, summary.untied, overwrite, &quantization);
    }
    copy_companions(input.directory, staged, overwrite);
    complete_output(staged, settings.container, texts, settings.metadata, overwrite);
  } else if (gguf) {
    complete_output(staged, settings.container, texts, settings.metadata, overwrite);
  } else if (!input.config_file.empty() && !fs::exists(place.directory / "config.json")) {
    log_info("config.json is not copied beside {}: --copy-config does that", o.out.string());
  }
  staged.publish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print_summary(o, settings.levels, summary, seconds.count(), io);
  if (!config) {  // a bag of tensors: whatever its values mean is not for us to say
    for (const std::string& p : summary.damage) io.out << "note: " << visible_line(p) << "\n";
    return ExitCode::ok;
  }
  const std::vector<std::string> problems = problems_of(o.out, *config, summary, pool);
  for (const std::string& p : problems) io.out << "PROBLEM: " << visible_line(p) << "\n";
  if (problems.empty()) return ExitCode::ok;
  io.out << fmt::format("{} is written and DAMAGED, as its input is\n", o.out.string());
  return ExitCode::file;
}

}  // namespace

Command convert_command() {
  return make_command<ConvertOptions>(
      "convert", "Convert weights between model directories, safetensors, .dat and GGUF",
      "Raw tensors keep their values; rounding, where the new type asks for it, is counted and\n"
      "reported, a value it cannot hold is an error. A .dat of a tied model gets its own\n"
      "lm_head.weight; a directory gets none when it is the embedding. Into a directory, and into\n"
      "an empty place beside a file, config.json and the tokenizer's files are copied; those of a\n"
      "GGUF are made from its metadata. Its blocks are expanded to fp32 unless --dtype says less.\n"
      "A .gguf has all of that in itself, and a Modelfile for Ollama beside it.",
      run_convert);
}

}  // namespace nibble
