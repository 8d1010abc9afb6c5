// SPDX-License-Identifier: MIT
#include "train/checkpoint.h"

namespace nibble {
namespace {

std::string number(double v) { return fmt::format("{}", v); }
std::string number(int64_t v) { return fmt::format("{}", v); }

}  // namespace

RunIdentity run_identity(const Config& c, const TrainSettings& s) {
  RunIdentity id;
  id["model"] =
      fmt::format("{} layers, width {}, heads {}/{} of {}, feed-forward {}, vocabulary {}", c.L,
                  c.C, c.Hq, c.Hkv, c.D, c.F, c.V);
  id["rope-theta"] = number(c.rope.theta);
  if (c.rope.kind != RopeKind::standard) {
    id["rope"] = fmt::format("{} by {}", rope_kind_name(c.rope.kind), c.rope.factor);
  }
  if (!c.qk_norm) id["heads"] = c.qkv_bias ? "with biases" : "as projected";
  id["rms-norm-eps"] = number(c.rms_eps);
  id["loss"] = s.loss == LossKind::ce ? "ce" : "scalar";
  id["recipe"] = recipe_name(s.recipe);
  id["head-recipe"] = recipe_name(s.head());
  id["scale-rule"] = scale_rule_name(s.rule);
  id["compute-dtype"] = dtype_name(s.compute);
  id["master-dtype"] = dtype_name(s.master);
  id["grad-dtype"] = dtype_name(s.grad);
  // Resident gradients are clipped by their own norm, released ones by the step before.
  id["memory-mode releases gradients"] = s.memory == MemoryMode::resident ? "no" : "yes";
  id["remade NVFP4"] = s.memory == MemoryMode::remake ? "yes" : "no";
  id["untie"] = s.untie ? "true" : "false";
  const OptimizerSettings& o = s.optimizer;
  id["optimizer-state-mode"] = moment_format_name(o.moments);
  id["beta1"] = number(o.beta1);
  id["beta2"] = number(o.beta2);
  id["eps"] = number(o.eps);
  id["weight-decay"] = number(o.weight_decay);
  id["decay-all"] = o.decay_all ? "true" : "false";
  id["grad-clip"] = number(o.grad_clip);
  id["update-from"] = o.from == UpdateFrom::master ? "master" : "quantised";
  id["master-rounding"] = master_rounding_name(o.rounding);
  id["lr"] = number(s.schedule.lr);
  id["warmup-steps"] = number(s.schedule.warmup);
  switch (s.schedule.shape) {
    case ScheduleShape::constant: id["lr-schedule"] = "constant"; break;
    case ScheduleShape::linear: id["lr-schedule"] = "linear"; break;
    case ScheduleShape::cosine: id["lr-schedule"] = "cosine"; break;
  }
  // A constant rate may go on for longer; a falling one would fall differently.
  if (s.schedule.shape != ScheduleShape::constant) {
    id["steps"] = number(s.schedule.steps);
    id["final-lr-share"] = number(s.schedule.final_share);
  }
  std::string scales;
  for (const LrScale& r : s.lr_scale) {
    scales += fmt::format("{}{}={}", scales.empty() ? "" : ",", r.pattern, r.scale);
  }
  if (!scales.empty()) id["lr-scale"] = scales;
  id["train-last-layers"] = number(s.train_last_layers);
  id["seed"] = fmt::format("{}", s.seed);
  // The order of fp32 sums depends on where the vocabulary is cut.
  id["logits pieces"] = number(vocabulary_piece(c, s, s.max_outputs));
  return id;
}

}  // namespace nibble
