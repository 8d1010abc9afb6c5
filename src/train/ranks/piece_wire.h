// SPDX-License-Identifier: MIT
// What ranks send each other of a part of a parameter: a gradient of each to its owner, what the
// owner updated to everybody.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "train/packing.h"
#include "train/state.h"

namespace nibble {

// The different tokens of a batch, ascending, and which of them each of its rows is.
struct BatchTokens {
  std::vector<int32_t> ids, row;
};
BatchTokens tokens_of_batch(const PackedBatch& batch);

class PieceWire {
 public:
  explicit PieceWire(TrainState& state) : state_(state) {}

  // Before the backwards of a round: the tokens of its micro-batches, one of each rank. The first
  // round of a step begins the sums.
  void begin_round(std::vector<BatchTokens> tokens, bool first);
  // Of a rank's gradients for a piece: all elements, then the rows of its tokens.
  size_t gradient_bytes(const ShardPiece& piece, int from) const;
  std::byte* write_gradients(const ShardPiece& piece, std::byte* to) const;  // this rank's
  // To the sum, which is here; in the order of ranks.
  const std::byte* add(const ShardPiece& piece, int from, const std::byte* bytes);

  // What a forward reads of it: the master's elements, blocks of NVFP4.
  size_t weight_bytes(const ShardPiece& piece) const;
  void write_weights(const ShardPiece& piece, std::byte* to) const;
  void read_weights(const ShardPiece& piece, const std::byte* from);

 private:
  const ParamSpec& spec(const ShardPiece& p) const { return state_.groups().table[p.param]; }
  Tensor sum_of(const ShardPiece& piece) const;
  // Elements of row `id` of the embedding that lie in the piece: [begin, end) of the parameter.
  std::pair<int64_t, int64_t> meet(const ShardPiece& piece, int32_t id) const;
  bool sends_rows(const ShardPiece& p) const { return spec(p).slot == ParamSlot::embed; }
  bool sends_all(const ShardPiece& p) const;
  const LinearWeight* packed_rows(const ShardPiece& piece, int64_t& row_offset) const;

  TrainState& state_;
  std::vector<BatchTokens> tokens_;  // of each rank's micro-batch in this round
  bool first_ = true;
};

}  // namespace nibble
