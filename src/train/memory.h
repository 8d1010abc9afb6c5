// SPDX-License-Identifier: MIT
// Everything a training run keeps in backend memory, by lifetime. Made twice by the same code: on
// measuring arenas to learn the sizes (that is what `plan` prints), then for real.
#pragma once
#include <string>
#include <vector>

#include "model/acts.h"
#include "model/grads.h"
#include "model/weights.h"
#include "train/param_groups.h"
#include "train/ranks/shards.h"
#include "train/settings.h"

namespace nibble {

struct Moments {
  MomentFormat format = MomentFormat::f32;
  Tensor m, v;  // u8 [moment_bytes(format, numel)]; empty: frozen
};

// What a rank owns of a parameter: the only ones with a master and moments that are moved.
struct OwnedPart {
  ShardPiece of;
  Tensor master;  // [count]; elements of the whole master where the forward reads that
  Tensor sum;     // f32 [count]: of the gradients of a step
  Moments moments;
  Tensor nvfp4;  // MemoryMode::gathered: its blocks (ranks/packed_blocks.h); empty otherwise
};

// What lives for the whole run.
struct TrainTensors {
  // Dense, in the master's type: norms and small tensors f32. The head of a tied model is the
  // embedding itself. Linear layers that are frozen and computed with as NVFP4 have none.
  Weights master;
  // What the passes read: the master's norms and embedding; linear layers packed, or the master's
  // own where their recipe is dense. With MemoryMode::remake all blocks that have a master share
  // one packed set, with MemoryMode::gathered every other one; with MemoryMode::host the norms,
  // too, lie with the NVFP4 weights.
  Weights forward;
  LinearWeight head_piece;       // remake: rows of the head made on demand
  std::vector<Moments> moments;  // per parameter of the table
  Grads grads;
  // Several ranks: by layer, L first. Then `moments` are empty, linear layers that are computed
  // with as NVFP4 have no whole master, and the gradients are one layer's of one micro-batch.
  std::vector<OwnedPart> owned;
  Tensor embed_rows;  // see GradStream
  // What kept rows are compared with: another file's weights, or the forward's as they were at the
  // start, where what is frozen is the forward's own. No blocks: nothing is kept.
  Weights teacher;
  Tensor squares;       // f64 [parameters]: sums of squared gradients
  Tensor square_parts;  // see GradSquares; only where all gradients are resident
  Tensor sent, heard;   // u8, of exchanges that are under way; several ranks only
};

// What one micro-batch needs.
struct LossTensors {
  Tensor targets;  // i32 [R]
  Tensor stats;    // [R, 3]
  Tensor loss;     // [R]
  Tensor d_out;    // [R, C] stat: gradient of the normalised rows
  Tensor logits;   // [R, piece of V] stat; empty with the scalar loss
  Tensor dlogits;  // act; is `logits` where the types agree
  // Of the last K outputs, which are kept; empty without.
  Tensor teacher_stats;   // [K, 3]
  Tensor teacher_logits;  // [K, piece of V] stat
};
// The teacher's pass over the kept rows, before the forward: only n_out is there afterwards, the
// slots lie where the forward's activations come.
struct TeacherTensors {
  Batch batch;  // views of the step's, and sequences of its own
  Acts acts;
};
struct StepTensors {
  Batch batch;
  Acts acts;
  BackActs back;
  LossTensors loss;
  TeacherTensors teacher;
  Tensor embed_rows_of;  // see GradStream; several ranks only
};

struct StepShape {
  int64_t tokens = 1, outputs = 1, sequences = 1;
  int64_t kept_tokens = 0, kept_sequences = 0;
};
StepShape largest_step(const TrainSettings& settings);

struct TrainArenas {
  Arena master{"master weights"}, nvfp4{"NVFP4 weights"}, moments{"optimizer state"},
      gradients{"gradients"}, step{"activations"};
  // The embedding apart: it is read like the master's, and lies where masters lie.
  Arena teacher{"teacher"}, teacher_embedding{"teacher embed"};
  Arena exchange{"exchange"};  // what passes between ranks
  std::vector<Arena*> every() {
    return {&master, &nvfp4, &moments, &gradients, &step, &teacher, &teacher_embedding, &exchange};
  }
  // Those of this run: a teacher's only where there is one, and likewise the last.
  std::vector<Arena*> all();
  Place place_of(const Arena& arena, MemoryMode mode) const;
};

// All of it from these arenas; throws InternalError for settings that exclude each other.
TrainTensors make_train_tensors(TrainArenas& arenas, const Backend& backend, const Config& config,
                                const ParamGroups& groups, const TrainSettings& settings,
                                bool global_scales);
StepTensors make_step_tensors(Arena& arena, const Config& config, const TrainSettings& settings,
                              const StepShape& shape);

// The type of a parameter's master, whole or in parts.
DType master_type_of(const ParamGroups& groups, const TrainSettings& settings,
                     const ParamSpec& param);

// Whether nothing of a slot is trained: what its forward reads never changes then.
bool frozen_slot(const ParamGroups& groups, ParamSlot slot, int64_t layer);
// MemoryMode::gathered: whether the NVFP4 weights of a slot are shared out, too: those of a block
// whose parameters are all trained, and so have owners.
bool is_gathered(const ParamGroups& groups, const TrainSettings& settings, ParamSlot slot,
                 int64_t layer);
inline bool is_gathered(const ParamGroups& groups, const TrainSettings& settings,
                        const ParamSpec& param) {
  return param.is_linear() && is_gathered(groups, settings, param.slot, param.layer);
}
// A packed weight of `rows` rows as wide as `like`.
LinearWeight packed_like(Arena& arena, const Backend& backend, const LinearWeight& like,
                         int64_t rows);

// Rows of the head whose logits are made at a time: all of them, or a multiple of kRowPanel. Unless
// the settings say how many bytes: 96 MiB, which hold all of them for some hundred tokens, but at
// least 8192, below which the products with many tokens lose speed. It may not depend on the
// memory that happens to be free, because other pieces give other bits.
constexpr int64_t kLogitsBytes = 96 << 20, kLogitsColumns = 8192;
int64_t vocabulary_piece(const Config& config, const TrainSettings& settings, int64_t outputs);

// Bytes per arena of a run with these settings, in the order of TrainArenas::all().
struct ArenaBytes {
  std::string name;
  size_t bytes = 0;
  Place place = Place::device;
};
std::vector<ArenaBytes> plan_arenas(const Backend& backend, const Config& config,
                                    const ParamGroups& groups, const TrainSettings& settings,
                                    bool global_scales);

}  // namespace nibble
