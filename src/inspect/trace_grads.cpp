// SPDX-License-Identifier: MIT
#include "inspect/trace_grads.h"

#include <algorithm>
#include <numeric>

#include "backend/download.h"
#include "train/trainer.h"

namespace nibble {
namespace {

// The whole input as one packed batch.
PackedBatch batch_of(const TraceInput& in) {
  PackedBatch b;
  for (int64_t s = 0; s < in.B; ++s) {
    const auto begin = int32_t(s * in.T), length = int32_t(in.T);
    b.sequences.push_back({begin, length, begin, length});
    for (int64_t t = 0; t < in.T; ++t) {
      const int64_t row = s * in.T + t;
      b.ids.push_back(int32_t(in.ids[size_t(row)]));
      b.positions.push_back(int32_t(t));
      b.slots.push_back(int32_t(row));
      const int64_t label = t + 1 < in.T ? in.labels[size_t(row + 1)] : -1;
      if (label < 0) continue;
      b.out_rows.push_back(int32_t(row));
      b.targets.push_back(int32_t(label));
    }
  }
  b.order.resize(b.ids.size());
  std::iota(b.order.begin(), b.order.end(), 0);
  std::ranges::stable_sort(b.order, {}, [&](int32_t row) { return b.ids[size_t(row)]; });
  b.samples = in.B;
  return b;
}

Recipe recipe_of(RecipeChoice choice, bool packed) {
  if (choice == RecipeChoice::automatic) return packed ? Recipe::nvfp4 : Recipe::bf16;
  return choice == RecipeChoice::nvfp4 ? Recipe::nvfp4 : Recipe::bf16;
}

}  // namespace

std::vector<NamedGradient> trace_gradients(const Runtime& rt, const RuntimeOptions& o,
                                           const TraceInput& in) {
  const PackedBatch batch = batch_of(in);
  if (batch.outputs() == 0) throw_usage("--dump grads: no position of the input has a label");
  TrainSettings s;
  s.recipe = recipe_of(o.recipe, any_packed(rt.model.weights));
  s.head_recipe = o.head_recipe == RecipeChoice::automatic && o.recipe != RecipeChoice::automatic
                      ? s.recipe
                      : recipe_of(o.head_recipe, rt.model.weights.head.is_packed());
  s.rule = o.scale_rule;
  s.compute = rt.compute;
  s.master = s.grad = DType::f32;
  s.updates = false;
  s.max_tokens = batch.tokens();
  s.max_outputs = batch.outputs();
  s.max_sequences = in.B;
  TrainState state(*rt.backend, rt.model.config, *rt.source, s);
  Trainer trainer(state);
  trainer.accumulate_gradients(std::span(&batch, 1));
  std::vector<NamedGradient> grads;
  for (const ParamSpec& p : state.groups().table) {
    const Tensor g = grad_of(state.tensors().grads, p);
    if (!g) continue;
    auto values = download_floats(*rt.backend, g);
    if (trainer.progress.loss_scale != 1) {  // fp16: the backward ran on a scaled loss
      for (float& v : values) v = float(double(v) / trainer.progress.loss_scale);
    }
    grads.push_back({"grad." + p.name, p.shape, std::move(values)});
  }
  return grads;
}

}  // namespace nibble
