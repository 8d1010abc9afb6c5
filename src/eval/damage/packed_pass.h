// SPDX-License-Identifier: MIT
// Many sequences through a model in one pass, on a cache of its own, and the logits of wanted rows
// piece by piece: a whole text's logits never exist.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generate/kv_cache.h"
#include "model/acts.h"
#include "model/load.h"

namespace nibble {

struct PassOptions {
  DType compute = DType::f32;
  DType cache = DType::f32;  // keys and values pass through it, as in inference
  Activations activations = Activations::none;
};

struct PassSequence {
  std::span<const int32_t> ids;  // new tokens, at least one
  int64_t slot = 0;              // of the cache, where the sequence begins
  int64_t past = 0;              // tokens of it that earlier passes left there
  int64_t skip = 0, wanted = 0;  // logits are wanted of the rows skip .. skip + wanted of ids
};

// What a model says about one token that follows.
struct TokenScore {
  double log_probability = 0;
  bool greedy = false;  // no token is more likely
};

// What a row of logits says of the token that follows it.
struct RowFigures {
  double loss = 0;  // nats
  int32_t top = 0;  // the most likely token, the first of several; -1 where a logit is not finite
  double top_probability = 0;
};

class PackedPass {
 public:
  // Slots of the cache are what one pass, or several that go on from each other, may use.
  PackedPass(Backend& backend, const Model& model, const PassOptions& options, int64_t slots);

  // UsageError for a token outside the vocabulary, or a position the model does not know.
  void run(std::span<const PassSequence> sequences);
  int64_t wanted() const { return wanted_; }  // rows, of all sequences in their order
  int64_t vocabulary() const { return model_.config.V; }
  int64_t slots() const { return cache_.slots(); }
  // Rows whose logits fit the memory set aside for them.
  int64_t piece() const { return piece_; }

  // Of the wanted rows from `begin` on, as many as there are targets, at most piece(). Computed
  // where the logits are.
  std::vector<RowFigures> figures(int64_t begin, std::span<const int32_t> targets);
  // KL(base || this) in nats of the rows whose figures both were asked for last; not below 0, and 0
  // for equal logits. Both passes on one backend.
  std::vector<double> divergence_from(const PackedPass& base);
  // targets: lists of one token for each wanted row (-1: none). Computed where the logits are, each
  // piece of them once for all lists.
  std::vector<std::vector<TokenScore>> score(std::span<const std::vector<int32_t>> targets);

 private:
  struct Memory {
    Tensor tables;  // i32: every table of the batch, one upload
    Batch batch;
    Acts acts;
    Tensor logits;          // f32 [piece, V]
    Tensor stats, targets;  // f32 [piece, 3], i32 [piece]
    Tensor choices, top;    // i32 [piece, 16], i32 [piece]: what Backend::sample reads and writes
    Tensor apart;           // f32 [piece]
  };
  Memory make(Arena& arena, int64_t tokens, int64_t sequences, int64_t wanted) const;
  Tensor logits_on_backend(int64_t begin, int64_t count);

  Backend& backend_;
  const Model& model_;
  PassOptions options_;
  KvCache cache_;
  std::unique_ptr<Arena> arena_;  // grows
  Memory memory_;
  int64_t wanted_ = 0, piece_ = 1;
  int64_t looked_at_ = 0;  // rows whose logits and statistics lie in memory_
};

}  // namespace nibble
