// SPDX-License-Identifier: MIT
#include "eval/damage/packed_pass.h"

#include <algorithm>
#include <cmath>

#include "backend/download.h"
#include "backend/sampling.h"
#include "core/error.h"
#include "model/decoder.h"
#include "model/linear.h"

namespace nibble {
namespace {

constexpr int64_t kLogitBytes = int64_t(128) << 20;

void check_tokens(const PassSequence& s, const Config& c) {
  if (s.ids.empty()) throw_internal("a sequence without a new token");
  for (const int32_t id : s.ids) {
    if (id < 0 || id >= c.V) {
      throw_usage("token {} is outside the model's vocabulary of {}", id, c.V);
    }
  }
  const int64_t length = s.past + int64_t(s.ids.size());
  if (length > c.max_positions) {
    throw_usage("{} tokens in a row, but the model knows positions up to {}", length,
                c.max_positions);
  }
}

}  // namespace

PackedPass::PackedPass(Backend& backend, const Model& model, const PassOptions& options,
                       int64_t slots)
    : backend_(backend),
      model_(model),
      options_(options),
      cache_(backend, model.config, slots, options.cache),
      piece_(std::max<int64_t>(1, kLogitBytes / int64_t(sizeof(float)) / model.config.V)) {}

PackedPass::Memory PackedPass::make(Arena& a, int64_t n, int64_t sequences, int64_t wanted) const {
  const Config& c = model_.config;
  Memory m;
  int64_t at = 0;
  m.tables = a.take(DType::i32, {3 * n + 4 * sequences + wanted});
  const auto part = [&](int64_t count) {
    at += count;
    return m.tables.slice(at - count, count);
  };
  m.batch.ids = part(n);
  m.batch.positions = part(n);
  m.batch.slots = part(n);
  m.batch.sequences = part(4 * sequences).view({sequences, 4});
  m.batch.out_rows = part(wanted);
  // One row of logits comes with the slots; the wanted rows have their own, without any.
  m.acts = make_acts(a, c, {n, 1, options_.compute, DType::f32, Keep::none});
  m.acts.x_out = a.take(options_.compute, {std::max<int64_t>(1, wanted), c.C});
  m.acts.n_out = a.take(options_.compute, {std::max<int64_t>(1, wanted), c.C});
  const int64_t rows = std::clamp<int64_t>(wanted, 1, piece_);
  m.logits = a.take(DType::f32, {rows, c.V});
  m.stats = a.take(DType::f32, {rows, 3});
  m.targets = a.take(DType::i32, {rows});
  m.choices = a.take(DType::i32, {rows, int64_t(sizeof(SampleRow) / sizeof(int32_t))});
  m.top = a.take(DType::i32, {rows});
  m.apart = a.take(DType::f32, {rows});
  return m;
}

void PackedPass::run(std::span<const PassSequence> sequences) {
  std::vector<int32_t> ids, positions, slots, table, rows;
  for (const PassSequence& s : sequences) {
    check_tokens(s, model_.config);
    const auto n = int64_t(s.ids.size()), begin = int64_t(ids.size());
    if (s.skip < 0 || s.wanted < 0 || s.skip + s.wanted > n || s.slot < 0 || s.past < 0 ||
        s.slot + s.past + n > cache_.slots()) {
      throw_internal("a sequence of {} tokens behind {} at slot {} of {}", n, s.past, s.slot,
                     cache_.slots());
    }
    ids.insert(ids.end(), s.ids.begin(), s.ids.end());
    for (int64_t i = 0; i < n; ++i) {
      positions.push_back(int32_t(s.past + i));
      slots.push_back(int32_t(s.slot + s.past + i));
    }
    for (const int64_t v : {begin, n, s.slot, s.past + n}) table.push_back(int32_t(v));
    for (int64_t i = 0; i < s.wanted; ++i) rows.push_back(int32_t(begin + s.skip + i));
  }
  const auto n = int64_t(ids.size()), count = int64_t(sequences.size());
  wanted_ = int64_t(rows.size());
  looked_at_ = 0;
  Arena measure("activations");
  make(measure, n, count, wanted_);
  if (!arena_ || arena_->capacity() < measure.peak()) {
    arena_.reset();
    arena_ =
        std::make_unique<Arena>("activations", backend_.allocate(measure.peak(), "activations"));
  }
  arena_->release(0);
  memory_ = make(*arena_, n, count, wanted_);
  for (const auto* more : {&positions, &slots, &table, &rows}) {
    ids.insert(ids.end(), more->begin(), more->end());
  }
  backend_.upload(memory_.tables, ids.data());
  forward_hidden(backend_, model_.config, model_.weights, memory_.batch, memory_.acts,
                 cache_.views(), options_.activations, {model_.weights_needed, {}});
}

Tensor PackedPass::logits_on_backend(int64_t begin, int64_t count) {
  if (begin < 0 || count < 1 || count > piece_ || begin + count > wanted_) {
    throw_internal("logits of rows {} to {} of {}", begin, begin + count, wanted_);
  }
  looked_at_ = 0;
  const Tensor logits = memory_.logits.slice(0, count);
  linear_forward(backend_, logits, memory_.acts.n_out.slice(begin, count), model_.weights.head,
                 options_.activations);
  return logits;
}

std::vector<RowFigures> PackedPass::figures(int64_t begin, std::span<const int32_t> targets) {
  const auto count = int64_t(targets.size());
  const Tensor logits = logits_on_backend(begin, count);
  const Tensor stats = memory_.stats.slice(0, count), wanted = memory_.targets.slice(0, count);
  const Tensor choices = memory_.choices.slice(0, count), top = memory_.top.slice(0, count);
  const std::vector<SampleRow> greedy(targets.size());
  backend_.upload(wanted, targets.data());
  backend_.upload(choices, greedy.data());
  backend_.softmax_stats(stats, logits, wanted, 0, Accumulate::no);
  backend_.sample(top, logits, choices, {}, Choice::greedy);
  looked_at_ = count;
  const std::vector<float> found = download_floats(backend_, stats);
  std::vector<int32_t> tops(targets.size());
  backend_.download(tops.data(), top);
  std::vector<RowFigures> rows(targets.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* s = found.data() + 3 * i;  // largest, sum of exp(logit - largest), target's
    rows[i] = {std::log(double(s[1])) + double(s[0]) - double(s[2]), tops[i], 1 / double(s[1])};
  }
  return rows;
}

std::vector<double> PackedPass::divergence_from(const PackedPass& base) {
  if (&backend_ != &base.backend_ || looked_at_ < 1 || looked_at_ != base.looked_at_) {
    throw_internal("a divergence of {} rows from {}", looked_at_, base.looked_at_);
  }
  const int64_t n = looked_at_;
  const Tensor apart = memory_.apart.slice(0, n);
  backend_.divergence(apart, {}, memory_.logits.slice(0, n), memory_.stats.slice(0, n),
                      base.memory_.logits.slice(0, n), base.memory_.stats.slice(0, n), 1.0,
                      Accumulate::no);
  std::vector<double> out;
  // A divergence is never negative; what is below 0 is rounding. NaN stays what it is.
  for (const float d : download_floats(backend_, apart)) out.push_back(d < 0 ? 0 : double(d));
  return out;
}

std::vector<std::vector<TokenScore>> PackedPass::score(
    std::span<const std::vector<int32_t>> targets) {
  std::vector<std::vector<TokenScore>> scores(targets.size());
  for (int64_t begin = 0; begin < wanted_; begin += piece_) {
    const int64_t count = std::min(piece_, wanted_ - begin);
    const Tensor logits = logits_on_backend(begin, count);
    const Tensor stats = memory_.stats.slice(0, count), wanted = memory_.targets.slice(0, count);
    for (size_t k = 0; k < targets.size(); ++k) {
      if (int64_t(targets[k].size()) != wanted_) {
        throw_internal("{} targets for {} rows", targets[k].size(), wanted_);
      }
      backend_.upload(wanted, targets[k].data() + begin);
      backend_.softmax_stats(stats, logits, wanted, 0, Accumulate::no);
      const std::vector<float> found = download_floats(backend_, stats);
      for (int64_t i = 0; i < count; ++i) {
        const float* s = found.data() + 3 * i;  // largest, sum of exp(logit - largest), target's
        const bool any = targets[k][size_t(begin + i)] >= 0;
        scores[k].push_back(
            any ? TokenScore{double(s[2]) - double(s[0]) - std::log(double(s[1])), s[2] >= s[0]}
                : TokenScore{});
      }
    }
  }
  return scores;
}

}  // namespace nibble
