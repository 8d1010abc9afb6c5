// SPDX-License-Identifier: MIT
#include "job/train_plan.h"

#include <algorithm>

#include "convert/checkpoint_model.h"
#include "core/error.h"
#include "job/keep/teacher_model.h"
#include "train/state.h"

namespace nibble {

bool TrainPlan::fits() const { return std::ranges::any_of(plans, &MemoryPlan::fits); }

TrainPlan plan_training(const PlanRequest& r) {
  Config config;
  bool global_scales = false;
  if (r.model.named()) {
    const ModelPaths paths = resolve_model(r.model, TokenizerNeed::optional);
    const auto source = open_weights(paths.weights, TiedMatrix::once);
    config = training_config(load_config(paths.config), *source, r.train.untie);
    global_scales = has_global_scales(*source);
  } else {
    if (r.model.config.empty()) throw_usage("plan needs --model, or --config for a model to be");
    config = load_config(r.model.config);
    if (r.train.untie) config.tied = false;
  }
  const auto backend = make_backend(r.train.device, r.train.threads);
  const bool teaches = !r.keep.used() || r.keep.share.value_or(0) != 1;
  r.keep.check(teaches);
  TrainSettings s = r.train.settings();
  s.max_tokens = r.tokens.value_or(r.batch.batch_size * r.batch.seq_len);
  s.max_outputs = r.outputs.value_or(s.max_tokens);
  s.max_sequences = r.sequences.value_or(r.batch.batch_size);
  const auto teacher = open_teacher(r.keep, config, nullptr, s.compute);
  if (r.keep.used()) {
    const int64_t kept = r.keep.share_of(teaches).most_kept(r.batch.batch_size);
    s.keep.max_tokens = std::min(kept * r.batch.seq_len, s.max_tokens);
    s.keep.max_sequences = std::min(kept, s.max_sequences);
    if (teacher) s.keep.teacher = teacher->shape();
  }
  if (r.ranks > 1 && r.batch.accumulate > 1 && r.batch.accumulate % r.ranks != 0) {
    throw_usage("--accumulate {} micro-batches cannot be shared equally by --ranks {}",
                r.batch.accumulate, r.ranks);
  }
  s.ranks = int(r.ranks);
  TrainPlan plan;
  plan.plans = memory_plans(s, r.train, *backend, config, global_scales, r.batch.accumulate);
  for (const MemoryPlan& p : plan.plans) {
    if (!over_ranks(p.mode) || (!plan.wires.empty() && plan.wires.back().mode == p.mode)) continue;
    WirePlan wire;
    wire.mode = s.memory = p.mode;
    wire.rounds = std::max<int64_t>(1, r.batch.accumulate / r.ranks);
    wire.bytes = wire_bytes(make_param_groups(config, s), config, s, 0);
    wire.embed_rows = wire.bytes.embed_row * uint64_t(std::min(s.max_tokens, config.V));
    plan.wires.push_back(wire);
  }
  plan.available = memory_budget(*backend);
  plan.backend = backend->name();
  plan.parameters = config.parameter_count();
  return plan;
}

}  // namespace nibble
