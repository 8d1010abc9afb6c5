// SPDX-License-Identifier: MIT
// nibble plan: what a training run will need, before anything is loaded.
#include <ostream>

#include "apps/command.h"
#include "apps/train_options.h"
#include "core/memory_info.h"
#include "nlohmann/json.hpp"
#include "train/memory.h"
#include "train/state.h"

namespace nibble {
namespace {

struct PlanOptions {
  ModelOptions model;
  BatchFlags batch;
  TrainFlags train;
  std::optional<int64_t> tokens, outputs, sequences;
  bool json = false;

  void visit_fields(Fields& f) {
    model.visit_fields(f);
    f.section("Batch");
    batch.visit_fields(f);
    f.add(tokens, {.flag = "--batch-tokens",
                   .help = "Tokens of the largest batch; default --batch-size x --seq-len",
                   .least = 1});
    f.add(outputs, {.flag = "--batch-scored",
                    .help = "Scored tokens of the largest batch; default: all of them",
                    .least = 1});
    f.add(sequences, {.flag = "--batch-sequences",
                      .help = "Sequences of the largest batch; default --batch-size",
                      .least = 1});
    train.visit_fields(f);
    f.section("Output");
    f.add(json, {.flag = "--json", .help = "Print JSON instead of a table"});
  }
};

struct Row {
  MemoryMode mode;
  bool recompute;
  std::vector<ArenaBytes> arenas;
  uint64_t program = 0, total = 0;
};

bool wanted(const PlanOptions& o, MemoryMode mode, bool recompute) {
  const auto is = [&](MemoryChoice c, MemoryMode m) {
    return o.train.memory == MemoryChoice::automatic || (o.train.memory == c && mode == m);
  };
  const bool by_mode = is(MemoryChoice::resident, MemoryMode::resident) ||
                       is(MemoryChoice::release, MemoryMode::release) ||
                       is(MemoryChoice::remake, MemoryMode::remake);
  const bool by_recompute =
      o.train.recompute == Switch::automatic || (o.train.recompute == Switch::on) == recompute;
  const bool possible =
      (o.batch.accumulate == 1 || mode == MemoryMode::resident) &&
      (o.train.optimizer.from == UpdateFrom::master || mode != MemoryMode::remake);
  return by_mode && by_recompute && possible;
}

std::vector<Row> rows_of(const PlanOptions& o, const Backend& be, const Config& c,
                         bool global_scales) {
  TrainSettings s = o.train.settings();
  s.max_tokens = o.tokens.value_or(o.batch.batch_size * o.batch.seq_len);
  s.max_outputs = o.outputs.value_or(s.max_tokens);
  s.max_sequences = o.sequences.value_or(o.batch.batch_size);
  std::vector<Row> rows;
  for (const MemoryMode mode : {MemoryMode::resident, MemoryMode::release, MemoryMode::remake}) {
    for (const bool recompute : {false, true}) {
      if (!wanted(o, mode, recompute)) continue;
      s.memory = mode;
      s.recompute = recompute;
      Row r{mode, recompute, plan_arenas(be, c, make_param_groups(c, s), s, global_scales)};
      r.program = r.total = program_bytes(be, c, s);
      for (const ArenaBytes& a : r.arenas) r.total += a.bytes;
      rows.push_back(std::move(r));
    }
  }
  return rows;
}

void print_json(const std::vector<Row>& rows, uint64_t available, std::ostream& out) {
  nlohmann::ordered_json j = {{"available_bytes", available}, {"plans", nlohmann::json::array()}};
  for (const Row& r : rows) {
    nlohmann::ordered_json arenas;
    for (const ArenaBytes& a : r.arenas) arenas[a.name] = a.bytes;
    j["plans"].push_back({{"memory_mode", memory_mode_name(r.mode)},
                          {"recompute", r.recompute},
                          {"arenas", arenas},
                          {"program_bytes", r.program},
                          {"total_bytes", r.total},
                          {"fits", r.total <= available}});
  }
  out << j.dump(1) << "\n";
}

void print_table(const std::vector<Row>& rows, uint64_t available, std::ostream& out) {
  out << fmt::format("{:<10}{:<11}", "mode", "recompute");
  for (const ArenaBytes& a : rows.front().arenas) out << fmt::format("{:>17}", a.name);
  out << fmt::format("{:>13}{:>13}\n", "program", "total");
  for (const Row& r : rows) {
    out << fmt::format("{:<10}{:<11}", memory_mode_name(r.mode), r.recompute ? "yes" : "no");
    for (const ArenaBytes& a : r.arenas) out << fmt::format("{:>17}", format_bytes(a.bytes));
    out << fmt::format("{:>13}{:>13}{}\n", format_bytes(r.program), format_bytes(r.total),
                       r.total <= available ? "" : "  does not fit");
  }
  out << fmt::format("available {}\n", format_bytes(available));
}

ExitCode run_plan(const PlanOptions& o, Io& io) {
  // A config.json alone is enough: nothing is read but dimensions.
  Config config;
  bool global_scales = false;
  if (o.model.named()) {
    const ModelPaths paths = resolve_model(o.model, TokenizerNeed::optional);
    const auto source = open_tensor_source(paths.weights);
    config = training_config(load_config(paths.config), *source, o.train.untie);
    global_scales = has_global_scales(*source);
  } else {
    if (o.model.config.empty()) throw_usage("plan needs --model, or --config for a model to be");
    config = load_config(o.model.config);
    if (o.train.untie) config.tied = false;
  }
  const auto backend = make_backend(o.train.device, o.train.threads);
  const std::vector<Row> rows = rows_of(o, *backend, config, global_scales);
  if (rows.empty()) {
    throw_usage(
        "released gradients cannot be accumulated: use --accumulate 1 or --memory-mode "
        "resident");
  }
  const uint64_t available = backend->available_memory();
  if (o.json) {
    print_json(rows, available, io.out);
  } else {
    io.out << fmt::format("{} parameters on {}\n", config.parameter_count(), backend->name());
    print_table(rows, available, io.out);
  }
  for (const Row& r : rows) {
    if (r.total <= available) return ExitCode::ok;
  }
  return ExitCode::check_failed;
}

}  // namespace

Command plan_command() {
  return make_command<PlanOptions>(
      "plan", "Say what a training run will need, before anything is loaded",
      "One line per memory mode, in bytes per arena. The same code that will take the memory is\n"
      "run without taking it, so these are exact; the program's own share is an estimate, and the\n"
      "training data comes on top. Exit code 1 when nothing fits this machine.",
      run_plan);
}

}  // namespace nibble
