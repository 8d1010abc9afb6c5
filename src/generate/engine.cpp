// SPDX-License-Identifier: MIT
#include "generate/engine.h"

#include <algorithm>
#include <numeric>

#include "backend/recording_backend.h"
#include "core/error.h"
#include "model/qwen3.h"

namespace nibble {
namespace {

struct BatchTables {
  Batch batch;
  Tensor all;  // i32: every table of the batch, one upload
};

BatchTables make_tables(Arena& arena, int64_t n, int64_t outputs) {
  BatchTables t;
  t.all = arena.take(DType::i32, {3 * n + 4 + outputs});
  t.batch.ids = t.all.slice(0, n);
  t.batch.positions = t.all.slice(n, n);
  t.batch.slots = t.all.slice(2 * n, n);
  t.batch.sequences = t.all.slice(3 * n, 4).view({1, 4});
  t.batch.out_rows = t.all.slice(3 * n + 4, outputs);
  return t;
}

// Before the cache is allocated: its size follows from this number.
int64_t checked_context(const EngineOptions& o, const Config& c) {
  if (o.context < 1 || o.context > c.max_positions) {
    throw_usage("a context of {} tokens was asked for, but the model knows positions up to {}",
                o.context, c.max_positions);
  }
  return o.context;
}

}  // namespace

Engine::Engine(Backend& backend, const Model& model, const EngineOptions& options)
    : backend_(backend),
      model_(model),
      options_(options),
      cache_(backend, model.config, checked_context(options, model.config), options.cache) {}

void Engine::truncate(int64_t length) {
  if (length < 0 || length > this->length())
    throw_internal("truncate to {} of {}", length, this->length());
  tokens_.resize(size_t(length));
}

void Engine::check(std::span<const int32_t> tokens) const {
  if (tokens.empty()) throw_usage("there is nothing to run: the prompt has no tokens");
  for (int32_t id : tokens) {
    if (id < 0 || id >= model_.config.V) {
      throw_usage(
          "token {} is outside the model's vocabulary of {}: does the tokenizer belong to this "
          "model?",
          id, model_.config.V);
    }
  }
  if (int64_t(tokens.size()) > room()) {
    throw_usage(
        "the context is full: {} tokens are in it, {} more were to be added, it holds {}; use a "
        "larger "
        "--context or start a new conversation",
        length(), tokens.size(), cache_.slots());
  }
}

void Engine::reserve(int64_t n, int64_t outputs) {
  ActsShape shape{n, std::max<int64_t>(1, outputs), options_.compute, options_.stat, Keep::none};
  Arena measure("activations");
  make_tables(measure, n, outputs);
  make_acts(measure, model_.config, shape);
  if (!acts_arena_ || acts_arena_->capacity() < measure.peak()) {
    acts_arena_.reset();
    acts_arena_ =
        std::make_unique<Arena>("activations", backend_.allocate(measure.peak(), "activations"));
  }
  acts_arena_->release(0);
}

void Engine::run(std::span<const int32_t> tokens, Outputs outputs) {
  const int64_t n = int64_t(tokens.size()), past = length();
  const int64_t rows = outputs == Outputs::all ? n : outputs == Outputs::last ? 1 : 0;
  reserve(n, rows);
  BatchTables tables = make_tables(*acts_arena_, n, rows);
  acts_ = make_acts(*acts_arena_, model_.config,
                    {n, std::max<int64_t>(1, rows), options_.compute, options_.stat, Keep::none});
  host_.assign(tokens.begin(), tokens.end());
  for (int repeat = 0; repeat < 2; ++repeat) {  // positions, then slots: the same numbers here
    for (int64_t i = 0; i < n; ++i) host_.push_back(int32_t(past + i));
  }
  for (int64_t v : {int64_t(0), n, int64_t(0), past + n}) host_.push_back(int32_t(v));
  for (int64_t r = 0; r < rows; ++r) host_.push_back(int32_t(outputs == Outputs::all ? r : n - 1));
  backend_.upload(tables.all, host_.data());
  forward(backend_, model_.config, model_.weights, tables.batch, acts_, cache_.views(),
          options_.activations);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

std::span<const float> Engine::extend(std::span<const int32_t> tokens,
                                      const std::function<bool()>& stop) {
  check(tokens);
  const int64_t before = length();
  const size_t step = options_.chunk > 0 ? size_t(options_.chunk) : tokens.size();
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    if (begin > 0 && stop && stop()) {
      truncate(before);
      return {};
    }
    const size_t count = std::min(step, tokens.size() - begin);
    run(tokens.subspan(begin, count),
        begin + count == tokens.size() ? Outputs::last : Outputs::none);
  }
  logits_ = download_floats(backend_, acts_.logits);
  return logits_;
}

std::vector<float> Engine::extend_all(std::span<const int32_t> tokens) {
  check(tokens);
  run(tokens, Outputs::all);
  return download_floats(backend_, acts_.logits);
}

}  // namespace nibble
