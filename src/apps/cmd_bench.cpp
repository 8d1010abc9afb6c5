// SPDX-License-Identifier: MIT
// nibble bench: how fast a model runs here, as a share of what this machine can do.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/bench_peak.h"
#include "apps/bench_work.h"
#include "apps/command.h"
#include "apps/output_files.h"
#include "apps/runtime.h"
#include "core/file.h"
#include "core/log.h"
#include "core/memory_info.h"
#include "core/rng.h"
#include "core/thread_pool.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

enum class Phase { both, prefill, decode };

struct BenchOptions {
  RuntimeOptions runtime;
  CacheOptions cache;
  std::vector<int32_t> prompt_tokens = {64, 128};
  int64_t tokens = 32;
  int32_t repeat = 20, warmup = 1, buffer_mib = 512;
  Phase phase = Phase::both;
  bool brief = false;
  fs::path json_file, tokenizer_text;

  void visit_fields(Fields& f) {
    runtime.visit_fields(f);
    f.section("Measuring");
    f.add(prompt_tokens, {.flag = "--prompt-tokens",
                          .help = "Lengths of the prompts to prefill; decoding is measured after "
                                  "each of them"});
    f.add(tokens,
          {.flag = "--tokens", .help = "Tokens to decode in one sample", .value = "N", .least = 1});
    f.add(repeat, {.flag = "--repeat",
                   .help = "Samples of each figure",
                   .value = "N",
                   .least = 1,
                   .most = 100000});
    f.add(warmup, {.flag = "--warmup",
                   .help = "Runs before the first sample",
                   .value = "N",
                   .least = 0,
                   .most = 1000});
    f.add(buffer_mib, {.flag = "--buffer-mib",
                       .help = "Size of the buffer that the read bandwidth is measured with; it "
                               "must be far larger than the processor's caches",
                       .value = "N",
                       .least = 4,
                       .most = 65536});
    f.add_choice(phase, {.flag = "--phase", .help = "What to measure"},
                 {{"both", Phase::both}, {"prefill", Phase::prefill}, {"decode", Phase::decode}});
    f.add(brief, {.flag = "--brief",
                  .help = "Print the median of --phase in tokens per second and nothing else; for "
                          "scripts that take turns with another program"});
    f.add(tokenizer_text, {.flag = "--tokenizer-file",
                           .help = "A text whose encoding is measured, too",
                           .value = "FILE"});
    f.add(json_file, {.flag = "--json", .help = "Write everything to this file", .value = "FILE"});
    cache.visit_fields(f);
  }
};

struct Row {
  std::string phase;
  int64_t tokens = 0, past = 0;
  std::vector<double> rates;  // tokens per second, one per sample
  Work work;                  // of one sample's unit: a whole prompt, or one token
  double per_unit = 1;        // tokens the unit makes
};

struct Ceilings {
  double read = 0, fma = 0;
};

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

std::vector<int32_t> random_ids(uint64_t stream, int64_t n, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    ids.push_back(int32_t(philox(1, stream, uint64_t(i))[0] % uint64_t(vocabulary)));
  }
  return ids;
}

int32_t best_token(std::span<const float> logits) {
  return int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Prompts differ from sample to sample, so that nothing is served from a cache it would miss in
// use.
void measure(Engine& engine, const BenchOptions& o, int64_t prompt, Row& prefill, Row& decode) {
  for (int32_t i = 0; i < o.warmup + o.repeat; ++i) {
    const auto ids = random_ids(uint64_t(i), prompt, engine.config().V);
    engine.reset();
    auto start = Clock::now();
    int32_t next = best_token(engine.extend(ids));
    if (i >= o.warmup) prefill.rates.push_back(double(prompt) / seconds_since(start));
    if (o.phase == Phase::prefill) continue;
    start = Clock::now();
    for (int64_t t = 0; t < o.tokens; ++t) next = best_token(engine.extend(std::span(&next, 1)));
    if (i >= o.warmup) decode.rates.push_back(double(o.tokens) / seconds_since(start));
  }
}

std::vector<Row> measure_all(const BenchOptions& o, const Runtime& r) {
  const int64_t longest = *std::max_element(o.prompt_tokens.begin(), o.prompt_tokens.end());
  EngineOptions options = r.engine_options(o.cache);
  if (!o.cache.context) options.context = longest + o.tokens;
  Engine engine(*r.backend, r.model, options);
  std::vector<Row> rows;
  for (const int32_t prompt : o.prompt_tokens) {
    Row prefill{"prefill",     prompt, 0, {}, forward_work(r.model, prompt, 0, options.cache),
                double(prompt)};
    // The middle of the decoded stretch stands for all of it.
    Row decode{"decode",
               o.tokens,
               prompt,
               {},
               forward_work(r.model, 1, prompt + o.tokens / 2, options.cache),
               1};
    measure(engine, o, prompt, prefill, decode);
    if (o.phase != Phase::decode) rows.push_back(std::move(prefill));
    if (o.phase != Phase::prefill) rows.push_back(std::move(decode));
  }
  return rows;
}

json tokenizer_figures(const BenchOptions& o, const Runtime& r, std::ostream& out) {
  json j;
  std::vector<double> loads;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    Tokenizer::load(r.paths.tokenizer);
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
      const Tokenizer fresh = Tokenizer::load(r.paths.tokenizer);
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

Ceilings measure_ceilings(int threads, int32_t buffer_mib) {
  ThreadPool pool(threads);
  return {read_bandwidth(pool, size_t(buffer_mib) << 20, 7), fma_peak(pool, 7)};
}

json print_rows(const std::vector<Row>& rows, const Ceilings& c, std::ostream& out) {
  out << fmt::format("{:<8} {:>6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}\n", "phase",
                     "tokens", "context", "tok/s", "p10", "p90", "GB/s", "of read", "GFLOP/s",
                     "of FMA");
  json list = json::array();
  for (const Row& row : rows) {
    const Quantiles q = quantiles(row.rates);
    const double units = q.median / row.per_unit;  // passes per second
    const double read = units * row.work.bytes, flops = units * row.work.flops;
    out << fmt::format(
        "{:<8} {:>6} {:>8} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>6.1f} % {:>9.1f} {:>6.1f} %\n",
        row.phase, row.tokens, row.past, q.median, q.p10, q.p90, read / 1e9, 100 * read / c.read,
        flops / 1e9, 100 * flops / c.fma);
    list.push_back({{"phase", row.phase},
                    {"tokens", row.tokens},
                    {"context", row.past},
                    {"median_tok_s", q.median},
                    {"p10_tok_s", q.p10},
                    {"p90_tok_s", q.p90},
                    {"samples_tok_s", row.rates},
                    {"bytes_per_pass", row.work.bytes},
                    {"flops_per_pass", row.work.flops},
                    {"bytes_per_s", read},
                    {"share_of_read", read / c.read},
                    {"flops_per_s", flops},
                    {"share_of_fma", flops / c.fma}});
  }
  return list;
}

void check_usage(const BenchOptions& o) {
  if (o.prompt_tokens.empty()) throw_usage("--prompt-tokens is empty");
  for (const int32_t n : o.prompt_tokens) {
    if (n < 1) throw_usage("--prompt-tokens: {} is out of range, expected 1 or more", n);
  }
  if (!o.cache.use_kvc) throw_usage("bench measures the cache; --use-kvc false has no part in it");
  if (!o.brief) return;
  if (o.phase == Phase::both) throw_usage("--brief prints one number: add --phase prefill|decode");
  if (o.prompt_tokens.size() > 1) {
    throw_usage("--brief prints one number: give one length with --prompt-tokens, found {}",
                fmt::join(o.prompt_tokens, ","));
  }
  if (!o.json_file.empty() || !o.tokenizer_text.empty()) {
    throw_usage("--brief prints one number: --json and --tokenizer-file have no part in it");
  }
}

ExitCode run_bench(const BenchOptions& o, Io& io) {
  check_usage(o);
  refuse_replacing_input(o.json_file, resolve_model(o.runtime.model, TokenizerNeed::optional),
                         {o.tokenizer_text});
  const auto start = Clock::now();
  const Runtime r = open_runtime(o.runtime, TokenizerNeed::optional);
  const double load_s = seconds_since(start);
  if (!o.tokenizer_text.empty()) r.require_tokenizer();
  const std::vector<Row> rows = measure_all(o, r);
  if (o.brief) {
    io.out << fmt::format("{:.3f}\n", quantiles(rows.front().rates).median);
    return ExitCode::ok;
  }
  // The buffer of the bandwidth test is none of the model's memory, so it comes after this.
  const uint64_t peak = process_peak_bytes();
  const int threads = o.runtime.threads > 0 ? o.runtime.threads : default_thread_count();
  const Ceilings ceilings = measure_ceilings(threads, o.buffer_mib);
  io.out << fmt::format("{}: {}\n", r.paths.weights.string(), r.model.summary);
  io.out << fmt::format(
      "{}: reads {:.1f} GB/s, fp32 multiply-add {:.1f} GFLOP/s, both measured now\n",
      r.backend->name(), ceilings.read / 1e9, ceilings.fma / 1e9);
  io.out << fmt::format("loaded in {:.2f} s, peak memory {}; median of {} samples\n", load_s,
                        format_bytes(peak), o.repeat);
  json all = {{"model", r.paths.weights.string()},
              {"weights", r.model.summary},
              {"backend", r.backend->name()},
              {"threads", threads},
              {"repeat", o.repeat},
              {"warmup", o.warmup},
              {"buffer_bytes", uint64_t(o.buffer_mib) << 20},
              {"activations", activations_name(r.activations)},
              {"compute_dtype", dtype_name(r.compute)},
              {"load_s", load_s},
              {"peak_bytes", peak},
              {"read_bytes_per_s", ceilings.read},
              {"fma_flops_per_s", ceilings.fma}};
  if (r.tokenizer) all["tokenizer"] = tokenizer_figures(o, r, io.out);
  all["rows"] = print_rows(rows, ceilings, io.out);
  if (!o.json_file.empty()) write_text_file_atomic(o.json_file, all.dump(2) + "\n");
  return ExitCode::ok;
}

}  // namespace

Command bench_command() {
  return make_command<BenchOptions>(
      "bench", "Measure prefill and decode as a share of what this machine can do",
      "Prompts are random ids; decoding is greedy. GB/s and GFLOP/s count what the model must "
      "move\n"
      "and compute, not what the program happens to. Integer dot products of int8 activations can\n"
      "pass the fp32 ceiling.",
      run_bench);
}

}  // namespace nibble
