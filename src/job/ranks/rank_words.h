// SPDX-License-Identifier: MIT
// What rank 0 says to the others: one word, then what the word is about happens on all of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "comm/comm.h"
#include "train/ranks/owned_bytes.h"
#include "train/trainer.h"

namespace nibble {

struct RankWord {
  enum class Kind : int64_t {
    begin,  // a state from the files of the job
    step,   // from `position` of the data on
    fetch,  // bytes of what others own, to rank 0
    load,   // a checkpoint, whose path comes next
    lend,   // the NVFP4 weights of block `at`, to rank 0
    end,
  };
  Kind kind = Kind::end;
  uint64_t position = 0;
  StateBytes what = StateBytes::master;
  uint64_t param = 0, at = 0, bytes = 0;
  TrainerProgress progress = {};
};

// On all ranks: says it on rank 0, waits for it on the others, for as long as it takes.
RankWord pass_word(Comm& comm, const RankWord& word);

// Rank 0's side. What it says ends when this goes; not in the middle of something that all do.
class RankLeader {
 public:
  explicit RankLeader(Comm& comm);
  ~RankLeader();
  RankLeader(const RankLeader&) = delete;
  RankLeader& operator=(const RankLeader&) = delete;

  // Before the state of an attempt is made, and when it has been.
  void begin();
  void attach(TrainState& state);
  RankExchange* exchange() { return exchange_ ? &*exchange_ : nullptr; }
  void detach();  // before the state goes
  StepResult step(Trainer& trainer, std::span<const PackedBatch> micro_batches, uint64_t position);
  // After it was loaded here.
  void load(const std::filesystem::path& checkpoint);

 private:
  // Says a word and does what it is about; should that throw, the others cannot be told.
  template <class Body>
  auto together(const RankWord& word, Body&& body) {
    together_ = true;
    pass_word(comm_, word);
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      together_ = false;
    } else {
      auto result = body();
      together_ = false;
      return result;
    }
  }

  Comm& comm_;
  std::optional<RankExchange> exchange_;
  bool together_ = false;
};

}  // namespace nibble
