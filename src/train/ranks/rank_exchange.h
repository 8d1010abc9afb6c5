// SPDX-License-Identifier: MIT
// What passes between the ranks of a training: gradients to their owners, what was updated to
// everybody, squares and losses. All ranks call the same in the same order.
// docs/adr/0023-ranks.md
#pragma once
#include <span>
#include <vector>

#include "comm/comm.h"
#include "train/packing.h"
#include "train/ranks/owned_bytes.h"
#include "train/state.h"

namespace nibble {

// The different tokens of a batch, ascending, and which of them each of its rows is.
struct BatchTokens {
  std::vector<int32_t> ids, row;
};
BatchTokens tokens_of_batch(const PackedBatch& batch);

// Payload that a rank sends.
struct WireBytes {
  uint64_t gradients = 0;  // of one round, without rows of the embedding
  uint64_t weights = 0;    // after an update
  uint64_t embed_row = 0;  // for each row of the embedding and rank it has elements for, at most
};
WireBytes wire_bytes(const ParamGroups& groups, const Config& config, const TrainSettings& settings,
                     int rank);

class RankExchange {
 public:
  RankExchange(Comm& comm, TrainState& state);

  Comm& comm() { return comm_; }
  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  // Of which messages speak.
  void begin_step(int64_t step) { step_ = step; }
  // Before the backwards of a round: the tokens of its micro-batches, one of each rank. The first
  // round of a step begins the sums.
  void begin_round(std::vector<BatchTokens> tokens, bool first);
  // A layer's gradients (in the sense of PassHooks) are complete here: adds those of all ranks, in
  // their order, to the sums of their owners.
  void add_gradients(int64_t layer);
  // Of a value of each rank.
  std::vector<double> gather(double mine);
  bool agree(bool leader_says);  // what rank 0 says
  // Sums of squares of the summed gradients by trained parameter, in the order of the table: those
  // of one rank, bit for bit. On all ranks.
  std::vector<double> squares();
  // Owners have updated what they own: everybody gets the weights that a forward reads.
  void share_weights();
  // Bytes [at, at + n) of a master or a moment as it is when whole, to rank 0, which has them in
  // `out` afterwards; others give none.
  void fetch(StateBytes what, size_t param, uint64_t at, uint64_t n, std::span<std::byte> out);

 private:
  // What a rank sends of its gradients for a piece: all elements, then the rows of its tokens.
  size_t gradient_bytes(const ShardPiece& piece, int from) const;
  std::byte* write_gradients(const ShardPiece& piece, std::byte* to) const;
  const std::byte* add(const ShardPiece& piece, int from, const std::byte* bytes);
  size_t weight_bytes(const ShardPiece& piece) const;
  void write_weights(const ShardPiece& piece, std::byte* to) const;
  void read_weights(const ShardPiece& piece, const std::byte* from);
  const LinearWeight* packed_rows(const ShardPiece& piece, int64_t& row_offset) const;
  const ParamSpec& spec(const ShardPiece& p) const { return state_.groups().table[p.param]; }
  void at(const std::string& what) { comm_.at(fmt::format("step {}, {}", step_, what)); }
  Tensor sum_of(const ShardPiece& piece) const;
  // Elements of row `id` of the embedding that lie in the piece: [begin, end) of the parameter.
  std::pair<int64_t, int64_t> meet(const ShardPiece& piece, int32_t id) const;
  bool sends_rows(const ShardPiece& p) const { return spec(p).slot == ParamSlot::embed; }
  bool sends_all(const ShardPiece& p) const;

  Comm& comm_;
  TrainState& state_;
  Shards shards_;
  std::vector<BatchTokens> tokens_;  // of each rank's micro-batch in this round
  bool first_ = true;
  int64_t step_ = 0;
};

}  // namespace nibble
