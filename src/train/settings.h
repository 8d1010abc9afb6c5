// SPDX-License-Identifier: MIT
// What a training run is told: arithmetic, memory, optimizer. Values only; defaults here.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "model/config.h"
#include "model/weights.h"
#include "optim/adamw.h"
#include "quant/nvfp4.h"
#include "quant/recipe.h"
#include "train/schedule.h"

namespace nibble {

enum class LossKind {
  ce,      // mean cross entropy over scored tokens
  scalar,  // mean |h - embedding of the next token|, for debugging
};

enum class MemoryMode {
  resident,  // every gradient lives until the update
  release,   // a layer is updated inside the backward, its gradients make room for the next one's
  remake,    // release, and the NVFP4 weights are made from the master each time they are read
  host,      // release, with masters and moments in the host's memory; NVFP4 forward only
  sharded,   // several ranks: masters of NVFP4 layers, moments and sums of gradients shared out
  gathered,  // sharded, and the NVFP4 weights of blocks, which come together where they are read
};
// Those of a run alone.
constexpr MemoryMode kMemoryModes[] = {MemoryMode::resident, MemoryMode::release,
                                       MemoryMode::remake, MemoryMode::host};
std::string_view memory_mode_name(MemoryMode mode);
constexpr MemoryMode kMemoryModesOfRanks[] = {MemoryMode::sharded, MemoryMode::gathered};
constexpr bool over_ranks(MemoryMode mode) {
  return mode == MemoryMode::sharded || mode == MemoryMode::gathered;
}
// Whether an update happens inside the backward, and so by the norm of the step before.
constexpr bool releases(MemoryMode mode) {
  return mode != MemoryMode::resident && !over_ranks(mode);
}

// What the backward computes again instead of having kept it.
enum class Recompute {
  none,
  mlp,    // the feed-forward's activations, more than half of all, for a sixth more work
  block,  // everything but each block's input
};
constexpr Recompute kRecomputes[] = {Recompute::none, Recompute::mlp, Recompute::block};
std::string_view recompute_name(Recompute recompute);

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // norms and biases, too
  double grad_clip = 1.0;  // global L2 norm; 0: off
  MomentFormat moments = MomentFormat::int8;
  UpdateFrom from = UpdateFrom::master;
  MasterRounding rounding = MasterRounding::stochastic;
  int64_t chunk_rows = 0;  // rows of a parameter updated at a time; 0: all
};

// One pattern of --lr-scale: "lm_head", "layers.0-7", "q_proj", ...
struct LrScale {
  std::string pattern;
  double scale = 1;  // 0: frozen
};

// Rows that are kept: what the model says of them stays what its teacher says (docs/training.md).
struct KeepSettings {
  double weight = 1;  // of the divergence beside the cross entropy
  // Of the largest micro-batch; 0: nothing is kept, and there is no teacher.
  int64_t max_tokens = 0, max_sequences = 0;
  // A teacher that is another file, and how its weights are held; none: the run's own start.
  struct Teacher {
    Config config;
    WeightLayout layout;
  };
  std::optional<Teacher> teacher;

  bool used() const { return max_tokens > 0; }
};

struct TrainSettings {
  LossKind loss = LossKind::ce;
  Recipe recipe = Recipe::nvfp4;
  std::optional<Recipe> head_recipe;  // default: like the others
  ScaleRule rule = ScaleRule::four_over_six;
  DType compute = DType::f32;  // bf16; f16 with dynamic loss scaling
  DType stat = DType::f32;     // wider on the reference backend only
  DType master = DType::bf16;
  DType grad = DType::bf16;
  MemoryMode memory = MemoryMode::resident;
  Recompute recompute = Recompute::none;
  bool untie = false;   // two masters for a tied model
  bool updates = true;  // false: gradients are wanted, nothing else; no moments are kept
  OptimizerSettings optimizer;
  Schedule schedule;
  std::vector<LrScale> lr_scale;
  int64_t train_last_layers = 0;  // only the projections of the last N blocks; 0: everything
  uint64_t seed = 0;
  int ranks = 1, rank = 0;         // that train together, and which of them this is
  int64_t shard_window = 1 << 20;  // see Shards
  KeepSettings keep;
  // The largest micro-batch, kept rows included.
  int64_t max_tokens = 1, max_outputs = 1, max_sequences = 1;
  // Bytes of logits that may exist at once; the vocabulary is cut into pieces accordingly. Nothing:
  // see vocabulary_piece.
  std::optional<int64_t> logits_bytes;
  // Memory beside the run's own that its plan must leave room for: the gates'.
  uint64_t gate_bytes = 0;

  Recipe head() const { return head_recipe.value_or(recipe); }
};

// Tensors below this many elements keep an fp32 master and fp32 moments: they are few, and norms
// are where rounding hurts most.
constexpr int64_t kSmallTensor = 4096;

}  // namespace nibble
