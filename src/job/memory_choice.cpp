// SPDX-License-Identifier: MIT
#include "job/memory_choice.h"

#include <algorithm>

#include "core/log.h"
#include "core/memory_info.h"
#include "train/inference_view.h"
#include "train/param_groups.h"

namespace nibble {
namespace {

// What a process needs beside the arenas: on a CPU itself with a tokenizer, and the panels a matrix
// product packs one of its factors into; on a GPU what the backend takes for itself.
uint64_t program_bytes(const Backend& be, const Config& c, const TrainSettings& s) {
  if (be.traits().device == DeviceKind::cuda) {
    return be.device_memory().bytes + (s.memory == MemoryMode::host ? be.host_update_bytes() : 0);
  }
  constexpr uint64_t kProgram = 24 << 20, kLeastPanels = 8 << 20;
  constexpr uint64_t kPanelBytes = 4 * 32 * sizeof(float);  // for each row of the product's depth
  const int64_t piece = s.loss == LossKind::ce ? vocabulary_piece(c, s, s.max_outputs) : 0;
  int64_t deepest = std::max({piece, c.C, c.F, c.Hq * c.D, s.max_tokens});
  if (s.keep.teacher) {
    const Config& t = s.keep.teacher->config;
    deepest = std::max({deepest, t.C, t.F, t.Hq * t.D});
  }
  return kProgram + std::max(kLeastPanels, kPanelBytes * uint64_t(deepest));
}

// What the driver takes on a GPU after the plan was made: code of kernels and libraries, mostly.
uint64_t reserve_of(const Backend& be) {
  return be.traits().device == DeviceKind::cuda ? uint64_t(256) << 20 : 0;
}

bool asked_for(MemoryChoice choice, MemoryMode mode) {
  switch (choice) {
    case MemoryChoice::automatic: return true;
    case MemoryChoice::resident: return mode == MemoryMode::resident;
    case MemoryChoice::release: return mode == MemoryMode::release;
    case MemoryChoice::remake: return mode == MemoryMode::remake;
    case MemoryChoice::host: return mode == MemoryMode::host;
    case MemoryChoice::sharded: return mode == MemoryMode::sharded;
    case MemoryChoice::gathered: return mode == MemoryMode::gathered;
  }
  return false;
}
bool asked_for(RecomputeChoice choice, Recompute recompute) {
  switch (choice) {
    case RecomputeChoice::automatic: return true;
    case RecomputeChoice::none: return recompute == Recompute::none;
    case RecomputeChoice::mlp: return recompute == Recompute::mlp;
    case RecomputeChoice::block: return recompute == Recompute::block;
  }
  return false;
}

// Whether a mode can do what the settings ask for.
bool possible(MemoryMode mode, const TrainSettings& s, int64_t accumulate) {
  if (over_ranks(mode) != (s.ranks > 1)) return false;
  if (mode == MemoryMode::gathered && s.recipe != Recipe::nvfp4) return false;  // nothing to gather
  if (releases(mode) && accumulate > 1) return false;
  // Where NVFP4 weights are made on demand no 4-bit copy lives that could be updated.
  if (mode == MemoryMode::remake && s.optimizer.from != UpdateFrom::master) return false;
  return mode != MemoryMode::host || (s.recipe == Recipe::nvfp4 && s.head() == Recipe::nvfp4);
}

// Work of a step in tokens, by what was measured on an H200 with Qwen3-4B
// (docs/benchmarks/h200-training.md); the order is what matters. Recomputing is work per token.
// Masters and moments over the bus take the time of some 4,600 tokens, less what is computed
// meanwhile. NVFP4 weights made twice a step take that of 450; because that may requantise a file
// which another rule made, the mode comes after those that release or keep gradients. What ranks
// gather is NVFP4 twice a round, as much again as the weights and half of the gradients; how long
// it takes nobody knows here, so that it comes last.
double cost_of(MemoryMode mode, Recompute recompute, int64_t tokens) {
  const double n = double(tokens);
  const double again = recompute == Recompute::none ? 0 : recompute == Recompute::mlp ? 0.1 : 0.2;
  const double fixed = mode == MemoryMode::remake     ? 450 + 0.2 * n
                       : mode == MemoryMode::gathered ? 5000
                       : mode == MemoryMode::host     ? std::max(600 + 0.2 * n, 4600 - 0.35 * n)
                                                      : 0;
  return n * (1 + again) + fixed;
}

MemoryPlan plan_of(TrainSettings s, MemoryMode mode, Recompute recompute, const Backend& be,
                   const Config& c, bool global_scales) {
  s.memory = mode;
  s.recompute = recompute;
  MemoryPlan p;
  p.mode = mode, p.recompute = recompute;
  p.arenas = plan_arenas(be, c, make_param_groups(c, s), s, global_scales);
  p.program = p.total = program_bytes(be, c, s) + s.gate_bytes +
                        (s.gate_bytes > 0 ? InferenceView::bytes(be, c, s) : 0);
  for (const ArenaBytes& a : p.arenas) {
    const bool away = a.place == Place::host && !be.memory_is_host();
    (away ? p.on_host : p.total) += a.bytes;
  }
  p.fits = p.total + reserve_of(be) <= memory_budget(be) &&
           p.on_host <= be.available_host_memory() / 16 * 15;  // it cannot be swapped out
  p.cost = cost_of(mode, recompute, s.max_tokens);
  return p;
}

std::vector<MemoryPlan> plans_for(const TrainSettings& s, const TrainChoices& choices,
                                  const Backend& be, const Config& c, bool global_scales,
                                  int64_t accumulate) {
  std::vector<MemoryPlan> plans;
  std::vector<MemoryMode> modes(std::begin(kMemoryModes), std::end(kMemoryModes));
  modes.insert(modes.end(), std::begin(kMemoryModesOfRanks), std::end(kMemoryModesOfRanks));
  for (const MemoryMode mode : modes) {
    if (!asked_for(choices.memory, mode) || !possible(mode, s, accumulate)) continue;
    // Where there is one memory, "elsewhere" is no place to go.
    const bool pointless = mode == MemoryMode::host && be.memory_is_host();
    if (pointless && choices.memory != MemoryChoice::host) continue;
    for (const Recompute r : kRecomputes) {
      if (asked_for(choices.recompute, r))
        plans.push_back(plan_of(s, mode, r, be, c, global_scales));
    }
  }
  std::ranges::stable_sort(plans, {}, &MemoryPlan::cost);
  return plans;
}

std::string needs(const MemoryPlan& p) {
  std::string text = format_bytes(p.total);
  if (p.on_host > 0) text += fmt::format(" and {} of the host's", format_bytes(p.on_host));
  return text;
}

[[noreturn]] void does_not_fit(const MemoryPlan& smallest, const TrainSettings& s,
                               TrainChoices choices, const Backend& be, const Config& c,
                               bool global_scales, int64_t accumulate) {
  std::string arenas;
  for (const ArenaBytes& a : smallest.arenas) {
    arenas += fmt::format("\n  {:<18}{:>12}{}", a.name, format_bytes(a.bytes),
                          a.place == Place::host && !be.memory_is_host() ? "  host" : "");
  }
  arenas += fmt::format("\n  {:<18}{:>12}", "program", format_bytes(smallest.program));
  choices.memory = MemoryChoice::automatic, choices.recompute = RecomputeChoice::automatic;
  std::string help = "no memory mode fits; a smaller --batch-size or --seq-len needs less";
  if (accumulate > 1) help += ", and --accumulate 1 allows modes that release gradients";
  std::vector<MemoryPlan> fitting = plans_for(s, choices, be, c, global_scales, accumulate);
  std::erase_if(fitting, [](const MemoryPlan& p) { return !p.fits; });
  if (!fitting.empty()) {
    const MemoryPlan& least = *std::ranges::min_element(fitting, {}, &MemoryPlan::total);
    help = fmt::format("{} needs {} and would fit", memory_flags(fitting.front()),
                       needs(fitting.front()));
    if (least.total < fitting.front().total) {
      help += fmt::format("; the least, {}, needs {}", memory_flags(least), needs(least));
    }
  }
  std::string there = fmt::format("{} are available", format_bytes(memory_budget(be)));
  if (!be.memory_is_host()) {
    there +=
        fmt::format(" on {}, {} on the host", be.name(), format_bytes(be.available_host_memory()));
  }
  throw_device("this training needs {} of memory with {}, but {}:{}\n{} (nibble plan shows all)",
               needs(smallest), memory_flags(smallest), there, arenas, help);
}

}  // namespace

uint64_t memory_budget(const Backend& be) {
  return be.available_memory() + be.device_memory().bytes;
}

std::string memory_flags(const MemoryPlan& p) {
  return fmt::format("--memory-mode {} --recompute {}", memory_mode_name(p.mode),
                     recompute_name(p.recompute));
}

std::vector<MemoryPlan> memory_plans(TrainSettings s, const TrainChoices& choices,
                                     const Backend& be, const Config& c, bool global_scales,
                                     int64_t accumulate) {
  const bool shares =
      choices.memory == MemoryChoice::sharded || choices.memory == MemoryChoice::gathered;
  if (shares && s.ranks == 1) {
    throw_usage(
        "--memory-mode sharded and gathered share memory out over ranks: start several, mpirun -n "
        "N nibble ... (nibble plan: --ranks N)");
  }
  if (!shares && s.ranks > 1 && choices.memory != MemoryChoice::automatic) {
    throw_usage(
        "{} ranks train with --memory-mode sharded or gathered (auto takes one of them); the "
        "others are for one",
        s.ranks);
  }
  if (choices.memory == MemoryChoice::gathered && s.recipe != Recipe::nvfp4) {
    throw_usage("--memory-mode gathered shares out NVFP4 weights: use --recipe nvfp4, or sharded");
  }
  std::vector<MemoryPlan> plans = plans_for(s, choices, be, c, global_scales, accumulate);
  if (!plans.empty()) return plans;
  if (accumulate > 1) {
    throw_usage(
        "--memory-mode releases gradients as they come, and released gradients cannot be "
        "accumulated: use --accumulate 1 or --memory-mode resident");
  }
  if (choices.memory == MemoryChoice::host) {
    throw_usage(
        "--memory-mode host keeps the masters in host memory, where a dense forward would have to "
        "read them: use --recipe nvfp4 (and no other --head-recipe), or another --memory-mode");
  }
  throw_usage("--memory-mode remake has no 4-bit copy to update: use --update-from master");
}

void choose_memory(TrainSettings& s, const TrainChoices& choices, const Backend& be,
                   const Config& c, bool global_scales, int64_t accumulate) {
  const std::vector<MemoryPlan> plans = memory_plans(s, choices, be, c, global_scales, accumulate);
  const auto chosen = std::ranges::find_if(plans, &MemoryPlan::fits);
  if (chosen == plans.end()) {
    does_not_fit(*std::ranges::min_element(plans, {}, &MemoryPlan::total), s, choices, be, c,
                 global_scales, accumulate);
  }
  s.memory = chosen->mode;
  s.recompute = chosen->recompute;
  constexpr std::string_view kRecomputing[] = {"", ", recomputing feed-forwards",
                                               ", recomputing blocks"};
  const std::string away =
      chosen->on_host > 0 ? fmt::format(", and {} of the host's", format_bytes(chosen->on_host))
                          : "";
  log_info("memory mode {}{}: {} of {} available{}", memory_mode_name(s.memory),
           kRecomputing[size_t(s.recompute)], format_bytes(chosen->total),
           format_bytes(memory_budget(be)), away);
  if (releases(s.memory) && s.optimizer.grad_clip > 0) {
    log_info("released gradients are clipped by the norm of the step before");
  }
}

}  // namespace nibble
