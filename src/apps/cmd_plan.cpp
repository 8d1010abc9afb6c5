// SPDX-License-Identifier: MIT
// nibble plan: what a training run will need, before anything is loaded.
#include <ostream>

#include "apps/command.h"
#include "core/memory_info.h"
#include "job/memory_choice.h"
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

void print_json(const std::vector<MemoryPlan>& rows, uint64_t available, std::ostream& out) {
  nlohmann::ordered_json j = {{"available_bytes", available}, {"plans", nlohmann::json::array()}};
  for (const MemoryPlan& r : rows) {
    nlohmann::ordered_json arenas;
    for (const ArenaBytes& a : r.arenas) arenas[a.name] = a.bytes;
    j["plans"].push_back({{"memory_mode", memory_mode_name(r.mode)},
                          {"recompute", recompute_name(r.recompute)},
                          {"arenas", arenas},
                          {"program_bytes", r.program},
                          {"total_bytes", r.total},
                          {"host_bytes", r.on_host},
                          {"fits", r.fits}});
  }
  out << j.dump(1) << "\n";
}

void print_table(const std::vector<MemoryPlan>& rows, uint64_t available, std::ostream& out) {
  out << fmt::format("{:<10}{:<11}", "mode", "recompute");
  for (const ArenaBytes& a : rows.front().arenas) out << fmt::format("{:>17}", a.name);
  out << fmt::format("{:>13}{:>13}\n", "program", "total");
  for (const MemoryPlan& r : rows) {
    out << fmt::format("{:<10}{:<11}", memory_mode_name(r.mode), recompute_name(r.recompute));
    for (const ArenaBytes& a : r.arenas) out << fmt::format("{:>17}", format_bytes(a.bytes));
    out << fmt::format("{:>13}{:>13}", format_bytes(r.program), format_bytes(r.total));
    if (r.on_host > 0) out << fmt::format(" + {} of the host's", format_bytes(r.on_host));
    out << (r.fits ? "\n" : "  does not fit\n");
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
  TrainSettings s = o.train.settings();
  s.max_tokens = o.tokens.value_or(o.batch.batch_size * o.batch.seq_len);
  s.max_outputs = o.outputs.value_or(s.max_tokens);
  s.max_sequences = o.sequences.value_or(o.batch.batch_size);
  const std::vector<MemoryPlan> rows =
      memory_plans(s, o.train, *backend, config, global_scales, o.batch.accumulate);
  const uint64_t available = memory_budget(*backend);
  if (o.json) {
    print_json(rows, available, io.out);
  } else {
    io.out << fmt::format("{} parameters on {}\n", config.parameter_count(), backend->name());
    print_table(rows, available, io.out);
  }
  for (const MemoryPlan& r : rows) {
    if (r.fits) return ExitCode::ok;
  }
  return ExitCode::check_failed;
}

}  // namespace

Command plan_command() {
  return make_command<PlanOptions>(
      "plan", "Say what a training run will need, before anything is loaded",
      "One line per memory mode, the fastest first, in bytes per arena. The same code that will\n"
      "take the memory is run without taking it, so these are exact; the program's own share is "
      "an\n"
      "estimate, and the training data comes on top. Exit code 1 when nothing fits this machine.",
      run_plan);
}

}  // namespace nibble
