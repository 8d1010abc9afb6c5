// SPDX-License-Identifier: MIT
// nibble bench: how fast a model runs here, as a share of what this machine can do.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/command.h"
#include "apps/options/runtime_options.h"
#include "convert/checkpoint_model.h"
#include "core/file.h"
#include "core/memory_info.h"
#include "core/thread_pool.h"
#include "measure/bench_ceilings.h"
#include "measure/bench_measure.h"
#include "measure/bench_random.h"
#include "runtime/model_texts.h"
#include "runtime/output_files.h"
#include "runtime/runtime.h"
#include "runtime/runtime_memory.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct BenchOptions {
  RuntimeOptions runtime;
  CacheOptions cache;
  bool random_weights = false;
  std::optional<std::vector<int32_t>> prompt_tokens;
  std::vector<int32_t> batches = {1};
  int64_t tokens = 32;
  int32_t repeat = 20, buffer_mib = 512;
  std::optional<int32_t> warmup;
  BenchPhase phase = BenchPhase::both;
  bool brief = false, force = false;
  fs::path json_file, tokenizer_text;

  void visit_fields(Fields& f) {
    nibble::visit_fields(runtime, f);
    f.section("Measuring");
    f.add(random_weights,
          {.flag = "--random-weights",
           .help = "Make a model of the shape of --config with random NVFP4 weights, in memory; "
                   "no file is read"});
    f.add(prompt_tokens, {.flag = "--prompt-tokens",
                          .help = "Lengths of the prompts to prefill; decoding is measured after "
                                  "each of them; default 64,128, on a GPU 512,2048"});
    f.add(batches, {.flag = "--batch", .help = "Sequences to decode at once"});
    f.add(tokens, {.flag = "--tokens",
                   .help = "Tokens to decode in one sample, of each sequence",
                   .value = "N",
                   .least = 1});
    f.add(repeat, {.flag = "--repeat",
                   .help = "Samples of each figure",
                   .value = "N",
                   .least = 1,
                   .most = 100000});
    f.add(warmup, {.flag = "--warmup",
                   .help = "Runs before the first sample; default 1, on a GPU 3",
                   .value = "N",
                   .least = 0,
                   .most = 1000});
    f.add(buffer_mib, {.flag = "--buffer-mib",
                       .help = "Size of the buffer that the bandwidth is measured with; it must be "
                               "far larger than the processor's caches",
                       .value = "N",
                       .least = 4,
                       .most = 65536});
    f.add_choice(phase, {.flag = "--phase", .help = "What to measure"},
                 {{"both", BenchPhase::both},
                  {"prefill", BenchPhase::prefill},
                  {"decode", BenchPhase::decode}});
    f.add(brief, {.flag = "--brief",
                  .help = "Print the median of --phase in tokens per second and nothing else; for "
                          "scripts that take turns with another program"});
    f.add(tokenizer_text, {.flag = "--tokenizer-file",
                           .help = "A text whose encoding is measured, too",
                           .value = "FILE"});
    f.add(json_file, {.flag = "--json", .help = "Write everything to this file", .value = "FILE"});
    f.add(force, {.flag = "--force", .help = "Replace a --json that exists", .needs = "--json"});
    nibble::visit_fields(cache, f);
  }
};

// What the figures are shares of, measured in the same run.
std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

json tokenizer_figures(const BenchOptions& o, const Runtime& r, std::ostream& out) {
  json j;
  std::vector<double> loads;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    load_tokenizer(r.paths.tokenizer);
    loads.push_back(seconds_since(start));
  }
  j["load_s"] = quantiles(loads).median;
  out << fmt::format("tokenizer: loads in {:.3f} s", quantiles(loads).median);
  if (!o.tokenizer_text.empty()) {
    const std::string text = read_text_file(o.tokenizer_text);
    std::vector<double> rates;
    size_t count = 0;
    for (int i = 0; i < 5; ++i) {
      // A fresh one each time: a used tokenizer remembers whole words.
      const Tokenizer fresh = load_tokenizer(r.paths.tokenizer);
      const auto start = Clock::now();
      count = fresh.encode(text).size();
      rates.push_back(double(text.size()) / 1e6 / seconds_since(start));
    }
    j["encode_mb_s"] = quantiles(rates).median;
    j["text_bytes"] = text.size();
    j["text_tokens"] = count;
    out << fmt::format(", encodes {} bytes into {} tokens at {:.1f} MB/s on one core", text.size(),
                       count, quantiles(rates).median);
  }
  out << "\n";
  return j;
}

json print_rows(const std::vector<BenchRow>& rows, const Ceilings& c, std::ostream& out) {
  out << fmt::format("{:<8} {:>5} {:>6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}\n", "phase",
                     "batch", "tokens", "context", "tok/s", "p10", "p90", "GB/s",
                     "of " + c.bytes_name, "GFLOP/s", "of " + c.flops_name);
  json list = json::array();
  for (const BenchRow& row : rows) {
    const Quantiles q = quantiles(row.rates);
    const double units = q.median / row.per_pass;  // passes per second
    const double read = units * row.work.bytes, flops = units * row.work.flops;
    out << fmt::format(
        "{:<8} {:>5} {:>6} {:>8} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>6.1f} % {:>9.1f} {:>6.1f} "
        "%\n",
        row.phase, row.batch, row.tokens, row.past, q.median, q.p10, q.p90, read / 1e9,
        100 * read / c.bytes, flops / 1e9, 100 * flops / c.flops);
    list.push_back({{"phase", row.phase},
                    {"batch", row.batch},
                    {"tokens", row.tokens},
                    {"context", row.past},
                    {"median_tok_s", q.median},
                    {"p10_tok_s", q.p10},
                    {"p90_tok_s", q.p90},
                    {"samples_tok_s", row.rates},
                    {"bytes_per_pass", row.work.bytes},
                    {"flops_per_pass", row.work.flops},
                    {"bytes_per_s", read},
                    {"share_of_" + c.bytes_name, read / c.bytes},
                    {"flops_per_s", flops},
                    {"share_of_" + lower(c.flops_name), flops / c.flops}});
  }
  return list;
}

// What the run's own memory was to be, and what it was.
json print_device_memory(const Runtime& r, const EngineOptions& engine, std::ostream& out) {
  const uint64_t weights = r.model.memory.capacity(), peak = r.backend->device_memory().peak_bytes;
  const uint64_t cache = KvCache::bytes(r.model.config, engine.context, engine.cache);
  const uint64_t plan = weights + cache + kGpuWorkspace;
  out << fmt::format("device memory: peak {}, {} {} (weights {}, cache {}, workspace {})\n",
                     format_bytes(peak), peak <= plan ? "within" : "ABOVE", format_bytes(plan),
                     format_bytes(weights), format_bytes(cache), format_bytes(kGpuWorkspace));
  return {{"peak_bytes", peak},
          {"plan_bytes", plan},
          {"weight_bytes", weights},
          {"cache_bytes", cache}};
}

void check_usage(const BenchOptions& o) {
  const std::vector<int32_t> prompts = o.prompt_tokens.value_or(std::vector<int32_t>{64, 128});
  if (prompts.empty()) throw_usage("--prompt-tokens is empty");
  for (const int32_t n : prompts) {
    if (n < 1) throw_usage("--prompt-tokens: {} is out of range, expected 1 or more", n);
  }
  if (o.batches.empty()) throw_usage("--batch is empty");
  for (const int32_t n : o.batches) {
    if (n < 1 || n > 4096) throw_usage("--batch: {} is out of range, expected 1 to 4096", n);
  }
  if (!o.cache.use_kvc) throw_usage("bench measures the cache; --use-kvc false has no part in it");
  if (o.random_weights && o.runtime.model.named()) {
    throw_usage("--random-weights makes a model of the shape of --config: leave out --model");
  }
  if (o.random_weights && o.runtime.model.config.empty()) {
    throw_usage("--random-weights needs the shape of the model: give a config.json with --config");
  }
  if (!o.brief) return;
  if (o.phase == BenchPhase::both) {
    throw_usage("--brief prints one number: add --phase prefill|decode");
  }
  if (prompts.size() > 1) {
    throw_usage("--brief prints one number: give one length with --prompt-tokens, found {}",
                fmt::join(prompts, ","));
  }
  if (o.batches.size() > 1) {
    throw_usage("--brief prints one number: give one --batch, found {}", fmt::join(o.batches, ","));
  }
  if (!o.json_file.empty() || !o.tokenizer_text.empty()) {
    throw_usage("--brief prints one number: --json and --tokenizer-file have no part in it");
  }
}

ModelPaths paths_of(const BenchOptions& o) {
  if (!o.random_weights) return resolve_model(o.runtime.model, TokenizerNeed::optional);
  ModelPaths paths;
  const ModelOptions& m = o.runtime.model;
  paths.config = fs::is_directory(m.config) ? m.config / "config.json" : m.config;
  if (!fs::exists(paths.config)) throw_format("--config {}: no such file", paths.config.string());
  if (!m.tokenizer.empty()) paths.tokenizer = resolve_tokenizer(m);
  return paths;
}

ExitCode run_bench(const BenchOptions& o, Io& io) {
  check_usage(o);
  const ModelPaths paths = paths_of(o);
  check_output_file(o.json_file, o.force ? Overwrite::allow : Overwrite::refuse, paths,
                    {o.tokenizer_text});
  const int threads = o.runtime.threads > 0 ? o.runtime.threads : default_thread_count();
  RuntimeOptions runtime = o.runtime;
  runtime.device = choose_device(runtime.device);
  const bool on_gpu = runtime.device.kind == Device::cuda;
  const std::vector<int32_t> defaults =
      on_gpu ? std::vector<int32_t>{512, 2048} : std::vector<int32_t>{64, 128};
  const BenchPlan plan{o.prompt_tokens.value_or(defaults), o.batches, o.tokens, o.repeat,
                       o.warmup.value_or(on_gpu ? 3 : 1),  o.phase};
  CacheOptions cache = o.cache;
  if (!cache.context) {
    cache.context =
        *std::max_element(plan.prompt_tokens.begin(), plan.prompt_tokens.end()) + o.tokens;
  }
  // Every sequence has a cache of its own.
  const int64_t most = *std::max_element(o.batches.begin(), o.batches.end());
  CacheOptions all_caches = cache;
  all_caches.context = most * *cache.context;

  const auto start = Clock::now();
  const Runtime r =
      open_runtime(runtime, paths,
                   o.random_weights ? make_random_source(load_config(paths.config), 1, threads)
                                    : open_weights(paths.weights),
                   &all_caches);
  const double load_s = seconds_since(start);
  if (!o.tokenizer_text.empty()) r.require_tokenizer();
  const EngineOptions engine = r.engine_options(cache);
  const std::vector<BenchRow> rows = measure_model(
      *r.backend, r.model, [&](int64_t batch) { return r.engine_options(cache, batch); }, plan);
  const DecodeWay decode = on_gpu ? Engine(*r.backend, r.model, engine).decode_way() : DecodeWay();
  if (o.brief) {
    io.out << fmt::format("{:.3f}\n", quantiles(rows.front().rates).median);
    return ExitCode::ok;
  }
  // The buffers of the ceilings are none of the model's memory, so they come after this.
  const uint64_t peak = process_peak_bytes();
  const std::string model = o.random_weights ? "random weights" : paths.weights.string();
  json all = {{"model", model},
              {"weights", r.model.summary},
              {"backend", r.backend->name()},
              {"threads", threads},
              {"repeat", plan.repeat},
              {"warmup", plan.warmup},
              {"buffer_bytes", uint64_t(o.buffer_mib) << 20},
              {"activations", activations_name(r.activations)},
              {"compute_dtype", dtype_name(r.compute)},
              {"cache_dtype", dtype_name(engine.cache)},
              {"load_s", load_s},
              {"peak_bytes", peak}};
  io.out << fmt::format("{}: {}\n", model, r.model.summary);
  if (on_gpu) {
    all["device_memory"] = print_device_memory(r, r.engine_options(all_caches), io.out);
    all["one_launch_a_token"] = decode.one_launch;
    io.out << fmt::format("one sequence decodes with {}\n", decode.text);
  }
  const Ceilings ceilings = measure_ceilings(*r.backend, threads, size_t(o.buffer_mib) << 20);
  all[ceilings.bytes_name + "_bytes_per_s"] = ceilings.bytes;
  all[lower(ceilings.flops_name) + "_flops_per_s"] = ceilings.flops;
  io.out << fmt::format("{}: {}, both measured now\n", r.backend->name(), ceilings.description);
  io.out << fmt::format("loaded in {:.2f} s, peak memory {}; median of {} samples\n", load_s,
                        format_bytes(peak), plan.repeat);
  if (r.tokenizer) all["tokenizer"] = tokenizer_figures(o, r, io.out);
  all["rows"] = print_rows(rows, ceilings, io.out);
  if (!o.json_file.empty()) replace_file(o.json_file, all.dump(2) + "\n");
  return ExitCode::ok;
}

}  // namespace

Command bench_command() {
  return make_command<BenchOptions>(
      "bench", "Measure prefill and decode as a share of what this machine can do",
      "Prompts are random ids; decoding is greedy. GB/s and GFLOP/s count what the model must "
      "move\n"
      "and compute, not what the program happens to. Integer dot products of int8 activations can\n"
      "pass the fp32 ceiling. On a GPU the ceilings are a copy inside its memory and a large bf16\n"
      "product.",
      run_bench);
}

}  // namespace nibble
