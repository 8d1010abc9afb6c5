// SPDX-License-Identifier: MIT
// One model, one cache, one sequence: feeds tokens through the forward pass and hands out logits.
// Prompts go in whole, in chunks or token by token; the results are the same.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "generate/kv_cache.h"
#include "model/acts.h"
#include "model/load.h"

namespace nibble {

struct EngineOptions {
  int64_t context = 8192;  // slots of the cache
  int64_t chunk = 512;     // tokens of one forward pass at most; 0: a whole prompt in one
  DType compute = DType::f32;
  DType stat = DType::f32;  // f64 with a compute type of f64 (the reference backend)
  DType cache = DType::bf16;
  Activations activations = Activations::none;
};

class Engine {
 public:
  Engine(Backend& backend, const Model& model, const EngineOptions& options);

  // Appends `tokens` to the sequence and returns the logits [V] after the last one, valid until the
  // next call. UsageError when a token is outside the vocabulary or the context is full. `stop` is
  // asked between chunks; when it says true nothing is appended and the result is empty.
  std::span<const float> extend(std::span<const int32_t> tokens,
                                const std::function<bool()>& stop = {});
  // The same, with the logits of every new token: [tokens, V].
  std::vector<float> extend_all(std::span<const int32_t> tokens);

  void reset() { tokens_.clear(); }
  void truncate(int64_t length);  // forgets tokens from `length` on
  // The tokens whose keys and values are in the cache, in order.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t length() const { return int64_t(tokens_.size()); }
  int64_t room() const { return cache_.slots() - length(); }

  void set_chunk(int64_t chunk) { options_.chunk = chunk; }
  const EngineOptions& options() const { return options_; }
  const Config& config() const { return model_.config; }
  Backend& backend() { return backend_; }

 private:
  enum class Outputs { none, last, all };
  void run(std::span<const int32_t> tokens, Outputs outputs);
  void check(std::span<const int32_t> tokens) const;
  // Makes room for the activations of n tokens with `outputs` rows of logits.
  void reserve(int64_t n, int64_t outputs);

  Backend& backend_;
  const Model& model_;
  EngineOptions options_;
  KvCache cache_;
  std::unique_ptr<Arena> acts_arena_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> host_;  // batch tables on their way to the backend
  std::vector<float> logits_;
  Acts acts_;  // views for the batch of the last run
};

}  // namespace nibble
