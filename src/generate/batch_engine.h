// SPDX-License-Identifier: MIT
// One model and one cache for several sequences of their own. Prompts are fed sequence by sequence,
// whole, in chunks or token by token; decoding takes one token of each sequence at a time through a
// sequence of ops that the backend may record, and the next tokens are chosen where the logits are.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/hand_over.h"
#include "core/error.h"
#include "generate/kv_cache.h"
#include "generate/sampler.h"
#include "model/acts.h"
#include "model/load.h"

namespace nibble {

struct EngineOptions {
  int64_t context = 8192;  // slots of the cache, per sequence
  int64_t chunk = 512;     // tokens of one forward pass at most; 0: a whole prompt in one
  DType compute = DType::f32;
  DType stat = DType::f32;  // f64 with a compute type of f64 (the reference backend)
  DType cache = DType::bf16;
  Activations activations = Activations::none;
  // Tokens of all sequences together, whose memory they share in blocks; 0: each has its context.
  int64_t pool = 0;
};

// The token a sequence goes on with, and how the one after it is chosen.
struct DecodeStep {
  int64_t sequence = 0;
  int32_t id = 0;
  SampleOptions sample;
  uint64_t draw = 0;
};

// What comes after a step. chosen: most likely a step with the token it chooses, the same options
// and the next draw.
enum class Follow { unknown, chosen };

// A sequence has no room for what was to be added. Nothing was.
class ContextFull : public UsageError {
 public:
  using UsageError::UsageError;
};

// The sequences together have no room for it, though this one has. Nothing was added.
class PoolFull : public UsageError {
 public:
  using UsageError::UsageError;
};

class BatchEngine {
 public:
  BatchEngine(Backend& backend, const Model& model, const EngineOptions& options,
              int64_t sequences);

  // Appends `tokens` to a sequence. UsageError when a token is outside the vocabulary or the
  // context is full. `stop` is asked between chunks; when it says true nothing is appended and the
  // result is false.
  bool feed(int64_t sequence, std::span<const int32_t> tokens,
            const std::function<bool()>& stop = {});
  // The same in one pass and without logits: the part of a prompt whose end comes later, so that
  // steps of other sequences may run in between.
  void feed_part(int64_t sequence, std::span<const int32_t> tokens);
  // The same in one pass, with the logits of every new token: [tokens, V].
  std::vector<float> feed_all(int64_t sequence, std::span<const int32_t> tokens);
  // The token after those that feed appended last, to this sequence; -1 where the logits are not
  // finite. The penalty looks at all tokens of the sequence.
  int32_t sample(const SampleOptions& options, uint64_t draw);

  // Appends one token to each of several sequences and chooses the next of each, as feed and
  // sample would. Valid until the next call. Follow::chosen: of one sequence the step that is
  // likely to come is begun at once, before the chosen token is in host memory, where the backend
  // can do that; when something else comes, it is forgotten.
  std::span<const int32_t> step(std::span<const DecodeStep> steps, Follow follow = Follow::unknown);

  // How a step of n sequences goes through the model: as the backend says (Backend::decode_way), or
  // op by op where weights are made on the way.
  DecodeWay decode_way(int64_t n);

  // The logits of the last feed (one row), or of the last step (a row for each): [rows, V]. Those
  // of a step behind which another was begun are computed again, while its token is there.
  std::vector<float> logits();
  // One row of them: [V].
  std::vector<float> logits_of(int64_t row);

  void truncate(int64_t sequence, int64_t length);  // forgets tokens from `length` on
  // The tokens whose keys and values are in the cache, in order.
  const std::vector<int32_t>& tokens(int64_t sequence) const { return at(sequence).tokens; }
  int64_t length(int64_t sequence) const { return int64_t(tokens(sequence).size()); }
  int64_t room(int64_t sequence) const { return options_.context - length(sequence); }
  // Which memory stands behind the sequences; what is added needs blocks of a pool, and throws
  // PoolFull where hold() would say no.
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  // The keys and values of a sequence's tokens, layer by layer: keys, then values. What is read
  // from one engine can be put into another of the same model and cache type, which then goes on as
  // if it had run the tokens.
  void read_cache(int64_t sequence, const std::function<void(std::span<const std::byte>)>& part);
  void write_cache(int64_t sequence, std::span<const int32_t> tokens,
                   const std::function<void(std::span<std::byte>)>& fill);
  // In place of what sequence `to` holds: the first `length` tokens of another, with their keys and
  // values, as if it had run them. Of a pool it has the same memory until it goes on.
  void copy_prefix(int64_t from, int64_t to, int64_t length);
  int64_t sequences() const { return int64_t(sequences_.size()); }

  void set_chunk(int64_t chunk) { options_.chunk = chunk; }
  const EngineOptions& options() const { return options_; }
  const Config& config() const { return model_.config; }
  Backend& backend() { return backend_; }

 private:
  enum class Outputs { none, last, all };
  struct OneSequence {
    std::vector<int32_t> tokens;
    int64_t known = 0;  // of them in history_
  };
  // What the recorded ops depend on.
  enum class Ops { greedy, drawn, penalised };
  // A step that was begun before it was asked for.
  struct Ahead {
    bool begun = false;
    DecodeStep step;     // its id is not known yet
    int64_t length = 0;  // of the sequence before it
  };
  // Slots of a step of n sequences; they never move, so that recordings stay valid.
  struct StepSlots {
    Tensor tables;  // one upload: i32
    Tensor rows;    // i32 [n, 16]
    Tensor out;     // i32 [n]
    Batch batch;
    Acts acts;
    DecodePlan plan;
    std::array<std::unique_ptr<Recording>, 3> recordings;  // by Ops
  };

  OneSequence& at(int64_t sequence);
  const OneSequence& at(int64_t sequence) const;
  void check(int64_t sequence, std::span<const int32_t> tokens) const;
  void hold(int64_t sequence, int64_t tokens);
  void run(int64_t sequence, std::span<const int32_t> tokens, Outputs outputs);
  // Makes room for the activations of n tokens with `outputs` rows of logits.
  void reserve(int64_t n, int64_t outputs);
  StepSlots make_step_slots(Arena& arena, int64_t n) const;
  StepSlots& step_slots(int64_t n);
  // A row for the op; brings the history up to date where there is a penalty.
  SampleRow prepare(int64_t sequence, const SampleOptions& options, uint64_t draw);
  Tensor history() const;
  // The tables of a step of sequences that hold their tokens already.
  void upload_tables(StepSlots& slots, std::span<const DecodeStep> steps);
  // Runs the ops of a step whose tables are there.
  void enqueue(StepSlots& slots, Ops ops);
  // Begins the step that follows `step`, then waits for the token that one has chosen.
  int32_t begin_ahead(StepSlots& slots, Ops ops, const DecodeStep& step);
  // Whether the step that was begun is this one.
  bool is_begun(std::span<const DecodeStep> steps) const;
  void refresh_logits();

  Backend& backend_;
  const Model& model_;
  EngineOptions options_;
  KvCache cache_;
  std::vector<OneSequence> sequences_;
  std::unique_ptr<Arena> acts_arena_;              // of prompts; grows
  Acts acts_;                                      // views for the batch of the last feed
  std::unique_ptr<Arena> step_arena_;              // never moves once it is there
  std::vector<std::unique_ptr<StepSlots>> steps_;  // by n - 1
  std::unique_ptr<Arena> history_arena_;           // tokens in backend memory, for the penalty
  int64_t last_fed_ = -1;                          // sequence
  Tensor last_logits_;
  std::vector<int32_t> host_;  // tables on their way to the backend
  std::vector<int32_t> chosen_;
  Ahead ahead_;
  bool logits_lost_ = false;  // another step was begun where they were
  // Null: the backend has none. Goes first: it waits for a step that nobody has waited for.
  std::unique_ptr<HandOver> hand_over_;
};

}  // namespace nibble
