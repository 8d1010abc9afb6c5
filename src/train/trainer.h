// SPDX-License-Identifier: MIT
// One optimizer step after the other: micro-batches, loss, backward, clip, update. Knows nothing
// of files; data comes as packed batches.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "train/packing.h"
#include "train/ranks/rank_exchange.h"
#include "train/state.h"

namespace nibble {

struct StepResult {
  int64_t step = 0;  // 1 is the first
  // What is made smaller: the mean of the cross entropy over the tokens that are taught, and
  // settings.keep.weight times that of the divergence over the tokens that are kept.
  double loss = 0;
  std::optional<double> taught_loss, kept_loss;  // the two means; none where there is no such token
  double lr = 0;
  double grad_norm = 0;                      // before clipping
  double clip = 1;                           // factor applied to the gradients
  double loss_scale = 1;                     // fp16 only
  int64_t tokens = 0, scored = 0, kept = 0;  // fed; of these taught, kept
  bool skipped = false;                      // nothing was updated
  bool given_up = false;                     // it did not take place: see Trainer::give_up
  int64_t bad_tensors = 0;  // gradient release: tensors left out because of NaN or infinity
  std::string problem;      // why, in words
};

// What a checkpoint must hold beside the tensors.
struct TrainerProgress {
  int64_t step = 0;     // steps done
  int64_t updates = 0;  // of these, not skipped: AdamW's t
  int64_t skipped = 0;
  int64_t micro_batches = 0;  // numbers the random streams of gradient sums
  double previous_norm = 0;   // gradient release clips with it; 0: none yet
  double loss_scale = 65536;  // fp16
  int64_t good_steps = 0;     // since the loss scale last changed
  double lr_factor = 1;       // of the schedule's rate; a restart makes it smaller
};

class Trainer {
 public:
  // `ranks`: those that train together with this one, whose micro-batches are every so many-th of a
  // step's; a step then is taken by all of them. Null: it is alone.
  explicit Trainer(TrainState& state, RankExchange* ranks = nullptr);

  // One update from the micro-batches (several are accumulated): of all ranks, on each. Phases call
  // `phase(name)`: batch_ready, zero_grad_done, backward_done, optimizer_step_done; for each
  // micro-batch, before its backward, `part(name)`: teacher_done (of kept rows), forward_done,
  // head_done.
  StepResult step(std::span<const PackedBatch> micro_batches);
  std::function<void(const char*phase)> phase, part;
  // Asked between micro-batches. True: the step is given up, `progress` and weights stay as they
  // were before it, and its result says so.
  std::function<bool()> give_up;

  // Forward and backward only, gradients left in state.tensors().grads; the loss of a StepResult.
  // None: given up.
  std::optional<double> accumulate_gradients(std::span<const PackedBatch> micro_batches);
  // The loss of a batch, nothing else changes. Sums over several, of taught rows: loss * scored.
  double evaluate(const PackedBatch& batch);

  TrainerProgress progress;
  TrainState& state() { return state_; }

 private:
  // Of one micro-batch or of several.
  struct LossSums {
    double taught = 0, kept = 0;
    int64_t taught_tokens = 0, kept_tokens = 0;
    bool finite() const;
  };
  static LossSums tokens_of(std::span<const PackedBatch> micro_batches);
  StepTensors load(const PackedBatch& batch);
  void teach(StepTensors& t);
  // Adds to `sums`; the step's counts are known in it.
  void forward_loss(StepTensors& t, LossSums& sums, WantGradient gradient,
                    const GradStream& stream);
  std::optional<LossSums> accumulate(std::span<const PackedBatch> micro_batches);
  std::optional<LossSums> accumulate_over_ranks(std::span<const PackedBatch> micro_batches);
  bool add_round(LossSums& sums, const LossSums& own);
  void report(StepResult& r, const LossSums& sums) const;
  double objective(const LossSums& sums) const;
  void run_backward(StepTensors& t, const GradStream& stream, const PassHooks& hooks);
  GradStream grad_stream(bool first);
  AdamwStep adamw_step_of(size_t param, double lr) const;
  Requantize requantize_of(const ParamSpec& param) const;
  void add_update(std::vector<AdamwUpdate>& all, size_t param, double lr) const;
  std::vector<AdamwUpdate> own_updates(std::optional<int64_t> layer, double lr) const;
  void update(std::span<AdamwUpdate> updates, double clip);
  void finish_step(StepResult& r);
  bool update_resident(StepResult& r);
  bool update_over_ranks(StepResult& r);
  void update_gathered(const StepResult& r);
  bool set_norm(StepResult& r, double squares);
  void release_layer(int64_t layer, StepResult& r, double clip, double& squares);
  Tensor begin_squares(std::span<const size_t> params);
  std::vector<double> take_squares(Tensor sums);
  std::vector<size_t> without_squares(std::span<const size_t> params) const;
  std::vector<size_t> trained_params(std::optional<int64_t> layer) const;
  void say(const char* name) {
    if (phase) phase(name);
  }
  void say_part(const char* name) {
    if (part) part(name);
  }

  TrainState& state_;
  Backend& be_;
  RankExchange* ranks_;
  uint64_t running_updates_ = 0;  // a mark of the backend; 0: none
  GradSquares squares_;           // of the step's gradients, where they are resident
  std::vector<Sequence> teacher_sequences_;
};

}  // namespace nibble
