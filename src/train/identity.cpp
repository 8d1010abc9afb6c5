// SPDX-License-Identifier: MIT
#include "train/checkpoint.h"

namespace nibble {
namespace {

// FNV-1a, 64 bits.
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) hash_ = (hash_ ^ uint64_t(b)) * 0x100000001b3u;
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

std::string number(double v) { return fmt::format("{}", v); }
std::string number(int64_t v) { return fmt::format("{}", v); }

}  // namespace

std::string source_fingerprint(const TensorSource& source) {
  constexpr uint64_t kSampleBytes = 4096;
  Fingerprint f;
  std::vector<std::byte> bytes;
  for (const TensorInfo& t : source.tensors()) {
    f.add(t.name);
    f.add(t.describe());
    bytes.resize(size_t(std::min(kSampleBytes, t.n_bytes)));
    source.read(t, 0, bytes);
    f.add(bytes);
  }
  return f.text();
}

RunIdentity run_identity(const Config& c, const TrainSettings& s) {
  RunIdentity id;
  id["model"] =
      fmt::format("{} layers, width {}, heads {}/{} of {}, feed-forward {}, vocabulary {}", c.L,
                  c.C, c.Hq, c.Hkv, c.D, c.F, c.V);
  id["rope-theta"] = number(c.rope.theta);
  if (c.rope.kind != RopeKind::standard) {
    const RopeSpec& r = c.rope;
    id["rope"] = fmt::format("{} by {} beyond {} positions, {} to {}, {} to {}{}, times {}",
                             rope_kind_name(r.kind), r.factor, r.original_positions,
                             r.low_freq_factor, r.high_freq_factor, r.beta_slow, r.beta_fast,
                             r.truncate ? " in whole pairs" : "", r.attention_factor);
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
  id["memory-mode releases gradients"] = releases(s.memory) ? "yes" : "no";
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
  if (s.keep.used()) id["keep-weight"] = number(s.keep.weight);
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
