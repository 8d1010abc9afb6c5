// SPDX-License-Identifier: MIT
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/download.h"
#include "core/error.h"
#include "model/decoder.h"

namespace nibble {
namespace {

// Random streams: what is rounded, when, where. GradStream fills the low 16 bits itself.
enum class StreamUse : uint64_t { gradient = 1, update = 2 };
uint64_t stream_of(StreamUse use, int64_t counter, uint64_t tensor) {
  return uint64_t(use) << 60 | uint64_t(counter) << 20 | tensor;
}

// Dynamic loss scaling, as everyone does it.
constexpr double kGrowth = 2, kBackoff = 0.5, kLargestScale = 1 << 24;
constexpr int64_t kGrowthInterval = 2000;

}  // namespace

Trainer::Trainer(TrainState& state, RankExchange* ranks)
    : state_(state), be_(state.backend()), ranks_(ranks) {
  if ((ranks != nullptr) != over_ranks(state.settings().memory)) {
    throw_internal("a state that is shared out has other ranks, and no other state has");
  }
  if (state.settings().compute != DType::f16) progress.loss_scale = 1;
}

StepTensors Trainer::load(const PackedBatch& b) {
  const TrainSettings& s = state_.settings();
  const int64_t sequences = int64_t(b.sequences.size());
  if (b.tokens() > s.max_tokens || b.outputs() > s.max_outputs || sequences > s.max_sequences) {
    throw_internal("a batch of {} tokens, {} outputs, {} sequences; planned were {}, {}, {}",
                   b.tokens(), b.outputs(), sequences, s.max_tokens, s.max_outputs,
                   s.max_sequences);
  }
  if (b.kept_tokens > s.keep.max_tokens || b.kept_sequences > s.keep.max_sequences) {
    throw_internal("a batch keeps {} tokens, {} sequences; planned were {}, {}", b.kept_tokens,
                   b.kept_sequences, s.keep.max_tokens, s.keep.max_sequences);
  }
  Arena& arena = state_.arenas().step;
  arena.release(0);
  StepTensors t =
      make_step_tensors(arena, state_.config(), s,
                        {b.tokens(), b.outputs(), sequences, b.kept_tokens, b.kept_sequences});
  be_.upload(t.batch.ids, b.ids.data());
  be_.upload(t.batch.positions, b.positions.data());
  be_.upload(t.batch.slots, b.slots.data());
  be_.upload(t.batch.order, b.order.data());
  be_.upload(t.batch.sequences, b.sequences.data());
  be_.upload(t.batch.out_rows, b.out_rows.data());
  be_.upload(t.loss.targets, b.targets.data());
  if (b.kept_tokens > 0) {
    // The teacher sees the kept rows alone: the same sequences, counted from the first of them.
    const int32_t first = int32_t(b.tokens() - b.kept_tokens);
    teacher_sequences_.assign(b.sequences.end() - b.kept_sequences, b.sequences.end());
    for (Sequence& q : teacher_sequences_) q.q_begin -= first, q.kv_begin -= first;
    be_.upload(t.teacher.batch.sequences, teacher_sequences_.data());
  }
  return t;
}

GradStream Trainer::grad_stream(bool first) {
  GradStream g;
  g.accumulate = first ? Accumulate::no : Accumulate::yes;
  g.seed = state_.settings().seed;
  g.base = stream_of(StreamUse::gradient, progress.micro_batches++, 0);
  g.head_wrote_embed = state_.config().tied && state_.settings().loss == LossKind::ce;
  return g;
}

bool Trainer::LossSums::finite() const { return std::isfinite(taught) && std::isfinite(kept); }

Trainer::LossSums Trainer::tokens_of(std::span<const PackedBatch> micro_batches) {
  LossSums sums;
  for (const PackedBatch& b : micro_batches) {
    sums.taught_tokens += b.taught(), sums.kept_tokens += b.kept_tokens;
  }
  return sums;
}

double Trainer::objective(const LossSums& sums) const {
  double loss = 0;
  if (sums.taught_tokens > 0) loss += sums.taught / double(sums.taught_tokens);
  if (sums.kept_tokens > 0) {
    loss += state_.settings().keep.weight * (sums.kept / double(sums.kept_tokens));
  }
  return loss;
}

void Trainer::report(StepResult& r, const LossSums& sums) const {
  r.loss = objective(sums);
  if (sums.taught_tokens > 0) r.taught_loss = sums.taught / double(sums.taught_tokens);
  if (sums.kept_tokens > 0) r.kept_loss = sums.kept / double(sums.kept_tokens);
}

// The teacher's forward over the kept rows, before the slots it works in are the forward's.
void Trainer::teach(StepTensors& t) {
  const Config& c = state_.teacher_config();
  Acts& acts = t.teacher.acts;
  forward_hidden(be_, c, state_.tensors().teacher, t.teacher.batch, acts, kv_of_acts(acts, c),
                 Activations::none);
  say_part("teacher_done");
}

void Trainer::forward_loss(StepTensors& t, LossSums& sums, WantGradient gradient,
                           const GradStream& stream) {
  const Config& c = state_.config();
  TrainTensors& w = state_.tensors();
  const KeepSettings& keep = state_.settings().keep;
  const auto mean = [&](int64_t tokens) {
    return tokens > 0 ? progress.loss_scale / double(tokens) : 0.0;
  };
  KeptRows kept;
  if (t.teacher.batch.ids) {
    teach(t);
    kept.head = [this](int64_t b, int64_t n) { return state_.teacher_head_rows(b, n); };
    kept.n_out = t.teacher.acts.n_out;
    kept.scale = keep.weight * mean(sums.kept_tokens);
  }
  PassHooks hooks;
  hooks.weights_needed = [this](int64_t layer) { state_.need_weights(layer); };
  state_.need_weights(-1);
  forward_hidden(be_, c, w.forward, t.batch, t.acts, kv_of_acts(t.acts, c), Activations::none,
                 hooks);
  say_part("forward_done");
  LossInputs in{.config = c,
                .head = [this](int64_t b, int64_t n) { return state_.head_rows(b, n); },
                .embed = w.forward.embed,
                .n_out = t.acts.n_out,
                .scale = mean(sums.taught_tokens),
                .gradient = gradient,
                .d_head = {},
                .head_write = {},
                .kept = kept};
  if (c.tied) {
    in.d_head = w.grads.embed;
    in.head_write = stream.of(ParamSlot::head, -1);
  } else if (!w.grads.head.runs.empty()) {
    in.d_head = w.grads.head.runs.front().dw;
    in.head_write = stream.of(ParamSlot::head, -1);
  }
  if (state_.settings().loss == LossKind::ce) {
    vocabulary_loss(be_, in, t.loss);
  } else {
    scalar_loss(be_, in, t.loss);
  }
  say_part("head_done");
  const std::vector<float> losses = download_floats(be_, t.loss.loss);
  const size_t taught = losses.size() - size_t(kept.rows());
  double taught_sum = 0, kept_sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) (i < taught ? taught_sum : kept_sum) += losses[i];
  sums.taught += taught_sum, sums.kept += kept_sum;
}

// Losses of a round, in the order of its micro-batches. False: one is not finite, and the step is
// lost; then those after it count no more, as if they had not been begun.
bool Trainer::add_round(LossSums& sums, const LossSums& own) {
  const std::vector<double> taught = ranks_->gather(own.taught), kept = ranks_->gather(own.kept);
  for (size_t r = 0; r < taught.size(); ++r) {
    ++progress.micro_batches;
    sums.taught += taught[r], sums.kept += kept[r];
    if (!sums.finite()) return false;
  }
  return true;
}

std::optional<Trainer::LossSums> Trainer::accumulate_over_ranks(
    std::span<const PackedBatch> micro_batches) {
  const auto ranks = size_t(ranks_->size());
  if (micro_batches.size() % ranks != 0) {
    throw_internal("{} micro-batches for {} ranks", micro_batches.size(), ranks);
  }
  LossSums sums = tokens_of(micro_batches);
  for (size_t at = 0; at < micro_batches.size(); at += ranks) {
    const bool first = at == 0;
    if (!first && ranks_->agree(give_up && give_up())) return std::nullopt;
    const std::span<const PackedBatch> round = micro_batches.subspan(at, ranks);
    std::vector<BatchTokens> tokens;
    for (const PackedBatch& b : round) tokens.push_back(tokens_of_batch(b));
    const PackedBatch& b = round[size_t(ranks_->rank())];
    const BatchTokens own = tokens[size_t(ranks_->rank())];
    ranks_->begin_round(std::move(tokens), first);
    GradStream stream;  // every gradient is written, none is added to: no random bits
    StepTensors t = load(b);
    if (const Tensor rows = state_.tensors().embed_rows) {
      be_.upload(t.embed_rows_of, own.row.data());
      stream.embed_rows = rows.slice(0, int64_t(own.ids.size()));
      stream.embed_rows_of = t.embed_rows_of;
    }
    LossSums mine = sums;  // for the counts that scale it
    mine.taught = mine.kept = 0;
    forward_loss(t, mine, WantGradient::yes, stream);
    if (!add_round(sums, mine)) break;
    PassHooks hooks;
    hooks.gradients_ready = [this](int64_t layer) { ranks_->add_gradients(layer); };
    run_backward(t, stream, hooks);
  }
  return sums;
}

void Trainer::run_backward(StepTensors& t, const GradStream& stream, const PassHooks& more) {
  PassHooks hooks = more;
  hooks.weights_needed = [this](int64_t layer) { state_.need_weights(layer); };
  backward(be_, state_.config(), state_.tensors().forward, t.batch, t.acts, t.back, t.loss.d_out,
           state_.tensors().grads, stream, hooks);
}

double Trainer::evaluate(const PackedBatch& batch) {
  StepTensors t = load(batch);
  LossSums sums = tokens_of(std::span(&batch, 1));
  forward_loss(t, sums, WantGradient::no, {});
  return objective(sums);
}

std::optional<Trainer::LossSums> Trainer::accumulate(std::span<const PackedBatch> micro_batches) {
  LossSums sums = tokens_of(micro_batches);
  squares_.begin(state_.tensors().square_parts);
  for (const PackedBatch& b : micro_batches) {
    const bool first = &b == micro_batches.data();
    if (!first && give_up && give_up()) return std::nullopt;
    GradStream stream = grad_stream(first);
    if (micro_batches.size() == 1) stream.squares = &squares_;  // written once, as they stay
    StepTensors t = load(b);
    forward_loss(t, sums, WantGradient::yes, stream);
    if (!sums.finite()) break;  // the step is lost: spare the backward
    run_backward(t, stream, {});
  }
  return sums;
}

std::optional<double> Trainer::accumulate_gradients(std::span<const PackedBatch> micro_batches) {
  const std::optional<LossSums> sums = accumulate(micro_batches);
  return sums ? std::optional(objective(*sums)) : std::nullopt;
}

// Sums of squared gradients by parameter: begun, and taken, which on a GPU waits for all of them.
Tensor Trainer::begin_squares(std::span<const size_t> params) {
  std::vector<Tensor> grads;
  for (const size_t i : params) {
    grads.push_back(grad_of(state_.tensors().grads, state_.groups().table[i]));
  }
  const Tensor sums = state_.tensors().squares.slice(0, int64_t(params.size()));
  be_.sums_of_squares(sums, grads);
  return sums;
}
std::vector<double> Trainer::take_squares(Tensor sums) {
  std::vector<double> host(size_t(sums.dim(0)));
  if (!host.empty()) be_.download(host.data(), sums);
  return host;
}

// Those of `params` whose gradients came without their squares.
std::vector<size_t> Trainer::without_squares(std::span<const size_t> params) const {
  std::vector<size_t> without;
  for (const size_t i : params) {
    if (!squares_.holds(state_.groups().table[i])) without.push_back(i);
  }
  return without;
}

// Those of a layer in the sense of PassHooks, or all.
std::vector<size_t> Trainer::trained_params(std::optional<int64_t> layer) const {
  const ParamGroups& g = state_.groups();
  std::vector<size_t> params;
  for (size_t i = 0; i < g.table.size(); ++i) {
    if (g.trained[i] && (!layer || layer_of(g.table[i], state_.config()) == *layer)) {
      params.push_back(i);
    }
  }
  return params;
}

// All but the gradient's scale.
AdamwStep Trainer::adamw_step_of(size_t i, double lr) const {
  const ParamGroups& g = state_.groups();
  const OptimizerSettings& o = state_.settings().optimizer;
  const ParamSpec& p = g.table[i];
  const int64_t t = progress.updates + 1;
  AdamwStep step;
  step.lr = float(lr * g.scale[i]);
  step.beta1 = float(o.beta1);
  step.beta2 = float(o.beta2);
  step.eps = float(o.eps);
  step.weight_decay = p.is_matrix() || o.decay_all ? float(o.weight_decay) : 0.0f;
  step.bias1 = float(1 - std::pow(o.beta1, double(t)));
  step.bias2 = float(1 - std::pow(o.beta2, double(t)));
  step.seed = state_.settings().seed;
  step.stream = stream_of(StreamUse::update, t, i);
  step.from = requantize_of(p).weight ? o.from : UpdateFrom::master;
  step.rounding = o.rounding;
  return step;
}

Requantize Trainer::requantize_of(const ParamSpec& p) const {
  Requantize rq;
  rq.rule = state_.settings().rule;
  rq.row_offset = p.row_offset;
  // A tied head is the embedding's NVFP4 copy.
  const bool tied = p.slot == ParamSlot::embed && state_.config().tied;
  rq.weight = state_.updated_packed_of(tied ? state_.groups().table.back() : p);
  return rq;
}

void Trainer::add_update(std::vector<AdamwUpdate>& all, size_t i, double lr) const {
  const OptimizerSettings& o = state_.settings().optimizer;
  const ParamSpec& p = state_.groups().table[i];
  const AdamwStep step = adamw_step_of(i, lr);
  const Requantize rq = requantize_of(p);
  const Moments& m = state_.tensors().moments[i];
  const Tensor master = state_.master_of(p), grad = grad_of(state_.tensors().grads, p);
  const int64_t n = p.numel(), cols = p.is_matrix() ? p.shape[1] : n;
  int64_t chunk = n;
  if (o.chunk_rows > 0 && o.chunk_rows < n / cols) {
    chunk = (o.chunk_rows * cols + kMomentBlock - 1) / kMomentBlock * kMomentBlock;
  }
  for (int64_t begin = 0; begin < n; begin += chunk) {
    all.push_back({master, grad, m.m, m.v, m.format, begin, std::min(chunk, n - begin), step, rq});
  }
}

// What this rank owns; a layer's alone, or all.
std::vector<AdamwUpdate> Trainer::own_updates(std::optional<int64_t> layer, double lr) const {
  std::vector<AdamwUpdate> all;
  for (const OwnedPart& own : state_.tensors().owned) {
    const ParamSpec& p = state_.groups().table[own.of.param];
    if (layer && layer_of(p, state_.config()) != *layer) continue;
    AdamwStep step = adamw_step_of(own.of.param, lr);
    step.first = own.of.begin;
    const Requantize rq = requantize_of(p);
    const Moments& m = own.moments;
    all.push_back({own.master, own.sum, m.m, m.v, m.format, 0, own.of.count, step, rq});
  }
  return all;
}

void Trainer::update(std::span<AdamwUpdate> updates, double clip) {
  for (AdamwUpdate& u : updates) u.step.grad_scale = float(clip / progress.loss_scale);
  be_.adamw_steps(updates);
}

// Returns false when a gradient is not finite; then nothing was updated.
bool Trainer::update_resident(StepResult& r) {
  const std::vector<size_t> params = trained_params({});
  const Tensor sums = begin_squares(without_squares(params));
  std::vector<AdamwUpdate> updates;  // made while the sums are
  for (const size_t i : params) add_update(updates, i, r.lr);
  double squares = 0;
  for (const double sum : take_squares(sums)) squares += sum;
  if (const Tensor parts = squares_.made()) {
    for (const double sum : take_squares(parts.view({parts.numel()}))) squares += sum;
  }
  if (!set_norm(r, squares)) return false;
  update(updates, r.clip);
  return true;
}

// The same, where what is updated is what this rank owns.
bool Trainer::update_over_ranks(StepResult& r) {
  double squares = 0;
  for (const double sum : ranks_->squares()) squares += sum;
  if (!set_norm(r, squares)) return false;
  if (state_.settings().memory == MemoryMode::gathered) {
    update_gathered(r);
  } else {
    std::vector<AdamwUpdate> updates = own_updates({}, r.lr);
    update(updates, r.clip);
  }
  ranks_->share_weights();
  return true;
}

// Blocks lie where others come afterwards: one at a time.
void Trainer::update_gathered(const StepResult& r) {
  const ParamGroups& g = state_.groups();
  for (int64_t layer = -1; layer <= state_.config().L; ++layer) {
    std::vector<AdamwUpdate> updates = own_updates(layer, r.lr);
    const auto for_blocks = [&](void (TrainState::*what)(const ParamSpec&)) {
      for (const size_t i : trained_params(layer)) {
        if (state_.shared_out(StateBytes::nvfp4, g.table[i])) (state_.*what)(g.table[i]);
      }
    };
    for_blocks(&TrainState::lay_out_own);
    update(updates, r.clip);
    for_blocks(&TrainState::take_back_own);
  }
}

// The norm and the clip that follows from it; false: it is not finite.
bool Trainer::set_norm(StepResult& r, double squares) {
  r.grad_norm = std::sqrt(squares) / progress.loss_scale;
  if (!std::isfinite(squares)) {
    r.problem = "a gradient is not finite";
    return false;
  }
  const double limit = state_.settings().optimizer.grad_clip;
  // The usual 1e-6 keeps the clipped norm just below the limit.
  if (limit > 0) r.clip = std::min(1.0, limit / (r.grad_norm + 1e-6));
  return true;
}

void Trainer::release_layer(int64_t layer, StepResult& r, double clip, double& squares) {
  const std::vector<size_t> params = trained_params(layer);
  // A frozen layer has nothing to update, but its turn in waiting for the updates before it.
  const std::vector<double> sums = take_squares(begin_squares(params));
  std::vector<AdamwUpdate> updates;
  for (size_t k = 0; k < params.size(); ++k) {
    if (std::isfinite(sums[k])) {
      squares += sums[k];
      add_update(updates, params[k], r.lr);
    } else {
      ++r.bad_tensors;
      r.problem = "the gradient of " + state_.groups().table[params[k]].name +
                  " is not finite; it was left as it is";
    }
  }
  update(updates, clip);
  // Where updates go on beside the backward: two layers' gradients exist, so it may run ahead of
  // the updates by one layer.
  be_.await_updates(std::exchange(running_updates_, be_.mark_updates()));
}

StepResult Trainer::step(std::span<const PackedBatch> micro_batches) {
  const TrainSettings& s = state_.settings();
  StepResult r;
  r.step = progress.step + 1;
  struct RanksStep {
    RankExchange* ranks;
    RanksStep(RankExchange* all, int64_t step) : ranks(all) {
      if (ranks) ranks->begin_step(step);
    }
    ~RanksStep() {
      if (ranks) ranks->end_step();
    }
  } const together(ranks_, r.step);
  r.lr = learning_rate(s.schedule, r.step) * progress.lr_factor;
  r.loss_scale = progress.loss_scale;
  for (const PackedBatch& b : micro_batches) {
    r.tokens += b.tokens(), r.scored += b.taught(), r.kept += b.kept_tokens;
  }
  if (r.scored + r.kept == 0) throw_internal("a step without scored tokens");
  if (!releases(s.memory)) {
    const int64_t streams = progress.micro_batches;
    const std::optional<LossSums> sums =
        ranks_ ? accumulate_over_ranks(micro_batches) : accumulate(micro_batches);
    if (!sums) {
      progress.micro_batches = streams;
      r.given_up = true;
      return r;
    }
    report(r, *sums);
    say("backward_done");
    if (!std::isfinite(r.loss)) {
      r.problem = "the loss is not finite";
      r.skipped = true;
    } else {
      r.skipped = !(ranks_ ? update_over_ranks(r) : update_resident(r));
    }
  } else {
    if (micro_batches.size() != 1) throw_internal("gradient release takes one batch a step");
    const PackedBatch& b = micro_batches.front();
    const GradStream stream = grad_stream(true);
    StepTensors t = load(b);
    LossSums sums = tokens_of(micro_batches);
    forward_loss(t, sums, WantGradient::yes, stream);
    report(r, sums);
    if (!sums.finite()) {
      r.problem = "the loss is not finite";
      r.skipped = true;
    } else {
      // This step's norm is known when everything is updated already: clip by the last one's.
      const double limit = s.optimizer.grad_clip;
      if (limit > 0 && progress.previous_norm > 0) {
        r.clip = std::min(1.0, limit / (progress.previous_norm + 1e-6));
      }
      double squares = 0;
      PassHooks hooks;
      hooks.gradients_ready = [&](int64_t layer) { release_layer(layer, r, r.clip, squares); };
      run_backward(t, stream, hooks);
      be_.await_updates(std::exchange(running_updates_, 0));
      r.grad_norm = std::sqrt(squares) / progress.loss_scale;
      if (r.bad_tensors == 0) progress.previous_norm = r.grad_norm;
    }
    say("backward_done");
  }
  finish_step(r);
  say("optimizer_step_done");
  return r;
}

void Trainer::finish_step(StepResult& r) {
  ++progress.step;
  if (r.skipped) {
    ++progress.skipped;
  } else {
    ++progress.updates;
  }
  if (state_.settings().compute != DType::f16) return;
  if (r.skipped || r.bad_tensors > 0) {
    progress.loss_scale = std::max(1.0, progress.loss_scale * kBackoff);
    progress.good_steps = 0;
  } else if (++progress.good_steps >= kGrowthInterval) {
    progress.loss_scale = std::min(kLargestScale, progress.loss_scale * kGrowth);
    progress.good_steps = 0;
  }
}

}  // namespace nibble
