// SPDX-License-Identifier: MIT
// nibble plan: what a training run will need, before anything is loaded.
#include <nlohmann/json.hpp>
#include <ostream>

#include "apps/command.h"
#include "apps/options/model_options.h"
#include "apps/options/train_options.h"
#include "core/memory_info.h"
#include "job/train_plan.h"

namespace nibble {
namespace {

struct PlanOptions {
  PlanRequest request;
  bool json = false;

  void visit_fields(Fields& f) {
    nibble::visit_fields(request.model, f);
    f.section("Batch");
    nibble::visit_fields(request.batch, f);
    f.add(request.tokens, {.flag = "--batch-tokens",
                           .help = "Tokens of the largest batch; default --batch-size x --seq-len",
                           .least = 1});
    f.add(request.outputs, {.flag = "--batch-scored",
                            .help = "Scored tokens of the largest batch; default: all of them",
                            .least = 1});
    f.add(request.sequences, {.flag = "--batch-sequences",
                              .help = "Sequences of the largest batch; default --batch-size",
                              .least = 1});
    f.add(request.ranks, {.flag = "--ranks",
                          .help = "Ranks that train together: memory of one, bytes on the wire",
                          .least = 1,
                          .most = 4096});
    f.add(request.link_gbit,
          {.flag = "--link-gbit",
           .help = "What a rank can send in a second, in Gbit, for the time that "
                   "takes; default: not said",
           .least = 0});
    nibble::visit_fields(request.keep, f);
    nibble::visit_fields(request.train, f);
    f.section("Output");
    f.add(json, {.flag = "--json", .help = "Print JSON instead of a table"});
  }
};

void print_wire(const WirePlan& w, double link_gbit, std::ostream& out) {
  out << fmt::format(
      "{}: each rank sends {} a step: {} of gradients and at most {} of rows of the embedding in "
      "each of {} round{}, {} of weights{}\n",
      memory_mode_name(w.mode), format_bytes(w.total()), format_bytes(w.bytes.gradients),
      format_bytes(w.embed_rows), w.rounds, w.rounds == 1 ? "" : "s", format_bytes(w.bytes.weights),
      w.blocks() > 0 ? fmt::format(", {} of blocks where they are read", format_bytes(w.blocks()))
                     : "");
  if (link_gbit > 0) {
    out << fmt::format("at {:g} Gbit/s that takes {:.3g} s\n", link_gbit, w.seconds(link_gbit));
  }
}

void print_json(const TrainPlan& plan, double link_gbit, std::ostream& out) {
  nlohmann::ordered_json j = {{"available_bytes", plan.available},
                              {"plans", nlohmann::json::array()}};
  for (const MemoryPlan& r : plan.plans) {
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
  for (const WirePlan& w : plan.wires) {
    nlohmann::ordered_json wire = {{"rounds", w.rounds},
                                   {"gradient_bytes", w.bytes.gradients},
                                   {"most_embedding_row_bytes", w.embed_rows},
                                   {"weight_bytes", w.bytes.weights},
                                   {"block_bytes", w.blocks()},
                                   {"total_bytes", w.total()}};
    if (link_gbit > 0) wire["seconds"] = w.seconds(link_gbit);
    j["wire"][memory_mode_name(w.mode)] = wire;
  }
  out << j.dump(1) << "\n";
}

void print_table(const TrainPlan& plan, std::ostream& out) {
  out << fmt::format("{:<10}{:<11}", "mode", "recompute");
  for (const ArenaBytes& a : plan.plans.front().arenas) out << fmt::format("{:>17}", a.name);
  out << fmt::format("{:>13}{:>13}\n", "program", "total");
  for (const MemoryPlan& r : plan.plans) {
    out << fmt::format("{:<10}{:<11}", memory_mode_name(r.mode), recompute_name(r.recompute));
    for (const ArenaBytes& a : r.arenas) out << fmt::format("{:>17}", format_bytes(a.bytes));
    out << fmt::format("{:>13}{:>13}", format_bytes(r.program), format_bytes(r.total));
    if (r.on_host > 0) out << fmt::format(" + {} of the host's", format_bytes(r.on_host));
    out << (r.fits ? "\n" : "  does not fit\n");
  }
  out << fmt::format("available {}\n", format_bytes(plan.available));
}

ExitCode run_plan(const PlanOptions& o, Io& io) {
  const TrainPlan plan = plan_training(o.request);
  if (o.json) {
    print_json(plan, o.request.link_gbit, io.out);
  } else {
    io.out << fmt::format("{} parameters on {}\n", plan.parameters, plan.backend);
    print_table(plan, io.out);
    for (const WirePlan& w : plan.wires) print_wire(w, o.request.link_gbit, io.out);
  }
  return plan.fits() ? ExitCode::ok : ExitCode::check_failed;
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
