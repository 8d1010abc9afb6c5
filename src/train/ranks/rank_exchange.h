// SPDX-License-Identifier: MIT
// What passes between the ranks of a training: gradients to their owners, what was updated to
// everybody, squares and losses. All ranks call the same in the same order.
// docs/adr/0023-ranks.md
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "comm/work_queue.h"
#include "train/ranks/piece_wire.h"

namespace nibble {

class RankExchange {
 public:
  RankExchange(Comm& comm, TrainState& state);
  ~RankExchange();
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  Comm& comm() { return comm_; }
  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }

  // Of which messages speak.
  void begin_step(int64_t step);
  void end_step() { in_step_ = false; }
  // See PieceWire; waits for what the round before sent.
  void begin_round(std::vector<BatchTokens> tokens, bool first);
  // A layer's gradients (in the sense of PassHooks) are complete here: adds those of all ranks, in
  // their order, to the sums of their owners. Beside what comes next: returns when those of the
  // layer before have been added.
  void add_gradients(int64_t layer);
  // Of a value of each rank.
  std::vector<double> gather(double mine);
  bool agree(bool leader_says);  // what rank 0 says
  // Sums of squares of the summed gradients by trained parameter, in the order of the table: those
  // of one rank, bit for bit. On all ranks.
  std::vector<double> squares();
  // Owners have updated what they own: everybody gets the weights that a forward reads, beside what
  // comes next.
  void share_weights();
  // Until those of a layer have come, and until nothing is under way. With MemoryMode::gathered a
  // block's come from their owners when they are awaited, those of the next one beside it.
  void await_weights(int64_t layer);
  void settle();
  // MemoryMode::gathered, between two steps: a block's weights for rank 0 alone, which asks probes.
  // All ranks call it; there `call_others` sees to that.
  void lend_block(int64_t layer);
  std::function<void(int64_t layer)> call_others;
  // Payload that this rank has sent, both ways; when nothing is under way.
  uint64_t bytes_sent() const;
  // Seconds in which there was nothing to do but wait for what passes beside.
  double waited_seconds() const;
  // Bytes [at, at + n) of a master, a moment or NVFP4 blocks as they are when whole, to rank 0,
  // which has them in `out` afterwards; others give none.
  void fetch(StateBytes what, size_t param, uint64_t at, uint64_t n, std::span<std::byte> out);

 private:
  // By rank, in the buffers of an exchange; what goes to the own rank may be where it comes from.
  struct WindowParts {
    std::vector<ConstBytes> to;
    std::vector<Bytes> from;
  };
  using MakeWindow =
      std::function<void(int64_t window, std::byte* sent, std::byte* heard, WindowParts& parts)>;
  using TakeWindow = std::function<void(int64_t window, const WindowParts& parts)>;
  void pass_windows(int64_t layer, const MakeWindow& make, const TakeWindow& take);
  void exchange_gradients(int64_t layer);
  void exchange_weights(int64_t layer);
  void await_block(int64_t layer);
  void begin_block(int64_t layer);
  void exchange_block(int64_t layer, bool for_all);
  Tensor own_blocks(const ShardPiece& piece) const;
  std::string name_of(int64_t layer) const;
  void at(const std::string& what) { comm_.at(fmt::format("step {}, {}", step_, what)); }

  // Layers take turns on two ways: while one makes its last window ready, or adds it, the other
  // keeps the wire busy.
  struct Way {
    Comm* comm = nullptr;
    int64_t part = 0;  // of the buffers
    WorkQueue queue;
  };
  struct Ticket {
    size_t way = 0;
    uint64_t number = 0;  // of its queue
  };
  Way& way_of(int64_t layer) { return ways_[size_t(layer + 1) % kWays]; }
  Ticket add(int64_t layer, std::string what, std::function<void()> work);
  void wait(const Ticket& ticket) { ways_[ticket.way].queue.wait(ticket.number); }

  Comm& comm_;
  TrainState& state_;
  PieceWire wire_;
  Shards shards_;
  int64_t step_ = 0;
  bool in_step_ = false;
  bool gathers_;                    // blocks come when they are needed, into one of two places:
  int64_t asked_ = -1;              // the last one that was awaited in this round
  int64_t laid_out_[2] = {-1, -1};  // whose are there, or on their way
  Ticket come_[2];
  Ticket last_gradients_;
  std::vector<Ticket> arrived_;  // of a layer's weights, -1 first
  std::array<Way, kWays> ways_;  // gone before all that they work with
};

}  // namespace nibble
