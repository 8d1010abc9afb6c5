// SPDX-License-Identifier: MIT
// Ranks that work on one thing: what they tell each other, over tensors. Three bodies: alone
// (here), MPI in the host's memory (mpi.h), NCCL in a GPU's on a stream (nccl.h). All ranks call
// the same functions in the same order with parts of the same sizes. docs/adr/0023-ranks.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace nibble {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

class Comm {
 public:
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool leads() const { return rank_ == 0; }
  virtual std::string name() const = 0;  // "MPI (Open MPI 4.1.4)", for the log
  // The machine a rank is on, for messages.
  virtual std::string host(int rank) const = 0;

  // Another way to the same ranks, for another thread: what is said there neither waits for what is
  // said here nor gets in its way. `which` of several; the first call of each is one that all ranks
  // make.
  Comm& beside(size_t which = 0);

  // Where the program is, for the message when a rank does not come: "step 12, gradients of layer
  // 3".
  void at(std::string_view where) { where_ = where; }
  const std::string& where() const { return where_; }

  // While it lives this rank waits for others without a limit: one is at something that takes long.
  class LongWait {
   public:
    explicit LongWait(Comm& comm) : comm_(comm) { ++comm_.long_waits_; }
    ~LongWait() { --comm_.long_waits_; }
    LongWait(const LongWait&) = delete;
    LongWait& operator=(const LongWait&) = delete;

   private:
    Comm& comm_;
  };

  // Everybody to everybody: to[r] goes to rank r, from[r] comes from it; own parts are copied. What
  // r sends here is as long as what is expected from it here.
  void exchange(std::span<const ConstBytes> to, std::span<const Bytes> from);
  // The same in two parts, so that two may be under way while something else is done: what it sends
  // and fills stays as it is until end(), which throws what went wrong. They end in the order in
  // which they were begun. A body that cannot do that does it all at the beginning.
  class UnderWay {
   public:
    virtual ~UnderWay() = default;
    virtual void end() {}
  };
  std::unique_ptr<UnderWay> begin_exchange(std::span<const ConstBytes> to,
                                           std::span<const Bytes> from);
  void barrier();
  // `t` of rank `root` to all.
  void broadcast(Tensor t, int root = 0);
  // parts[r] is rank r's, of any size, and is filled on all others; the own one is what is sent.
  void all_gather(std::span<const Tensor> parts);
  // t = the sum over ranks, f32 or f64. In the order of ranks beginning with a copy of the first,
  // unless the body says otherwise (nccl.h).
  void all_reduce(Tensor t);
  // mine [n] = this rank's part of the sum of all [size * n], f32 or f64; `all` stays as it is.
  void reduce_scatter(Tensor mine, Tensor all);

  // Payload that this rank has sent to others; not what it sent beside.
  uint64_t bytes_sent() const { return bytes_sent_; }

  // For what is said between ranks beside tensors; host memory in every body.
  std::vector<std::byte> broadcast_bytes(std::vector<std::byte> bytes, int root = 0);
  std::string broadcast_text(std::string text, int root = 0);
  std::vector<std::string> gather_texts(const std::string& mine);  // to all, in order of ranks

 protected:
  Comm(int rank, int size) : rank_(rank), size_(size) {}
  bool limited() const { return long_waits_ == 0; }
  void count(uint64_t bytes) { bytes_sent_ += bytes; }

 private:
  virtual std::unique_ptr<Comm> make_beside(size_t which) = 0;
  // Never with itself: parts of the own rank are left out. One may be empty.
  virtual void do_exchange(std::span<const ConstBytes> to, std::span<const Bytes> from) = 0;
  virtual std::unique_ptr<UnderWay> do_begin_exchange(std::span<const ConstBytes> to,
                                                      std::span<const Bytes> from);
  // The same in host memory, where that is another thing.
  virtual void do_exchange_host(std::span<const ConstBytes> to, std::span<const Bytes> from) {
    do_exchange(to, from);
  }
  virtual void do_copy(Bytes to, ConstBytes from);
  // In terms of do_exchange unless the body knows better.
  virtual void do_broadcast(Tensor t, int root);
  virtual void do_all_gather(std::span<const Tensor> parts);
  virtual void do_all_reduce(Tensor t);
  virtual void do_reduce_scatter(Tensor mine, Tensor all);
  void exchange_host(std::span<const ConstBytes> to, std::span<const Bytes> from);

  int rank_, size_;
  std::string where_ = "the start";
  uint64_t bytes_sent_ = 0;
  int long_waits_ = 0;
  std::vector<std::unique_ptr<Comm>> beside_;
};

// sum = sum + x, element by element in the type of `sum` (f32 or f64); x of that type, or bf16
// where sum is f32.
void add_in_order(Tensor sum, Tensor x);

// One rank: what it says to all it says to itself.
std::unique_ptr<Comm> make_alone();

}  // namespace nibble
