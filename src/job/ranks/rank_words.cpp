// SPDX-License-Identifier: MIT
#include "job/ranks/rank_words.h"

#include <cstring>
#include <type_traits>

#include "comm/process_ranks.h"
#include "core/log.h"

namespace nibble {

static_assert(std::is_trivially_copyable_v<RankWord>, "it is sent as its bytes");

RankWord pass_word(Comm& comm, const RankWord& word) {
  comm.at("the next word of rank 0");
  const Comm::LongWait while_rank_0_is_busy(comm);
  RankWord said = word;
  comm.broadcast(make_tensor(&said, DType::u8, {int64_t(sizeof said)}));
  return said;
}

RankLeader::RankLeader(Comm& comm) : comm_(comm) {}

RankLeader::~RankLeader() {
  if (together_) return;
  try {
    RankWord word;
    word.kind = RankWord::Kind::end;
    pass_word(comm_, word);
    ranks_are_done(true);
  } catch (const std::exception& e) {
    log_warning("the other ranks could not be told that this is the end: {}", e.what());
  }
}

void RankLeader::begin() {
  RankWord word;
  word.kind = RankWord::Kind::begin;
  pass_word(comm_, word);
}

void RankLeader::attach(TrainState& state) {
  exchange_.emplace(comm_, state);
  state.fetch = [this](StateBytes what, size_t param, uint64_t at, std::span<std::byte> out) {
    RankWord word;
    word.kind = RankWord::Kind::fetch;
    word.what = what;
    word.param = param, word.at = at, word.bytes = out.size();
    together(word, [&] { exchange_->fetch(what, param, at, out.size(), out); });
  };
  exchange_->call_others = [this](int64_t layer) {
    RankWord word;
    word.kind = RankWord::Kind::lend;
    word.at = uint64_t(layer);
    together(word, [&] { exchange_->lend_block(layer); });
  };
}

void RankLeader::detach() { exchange_.reset(); }

StepResult RankLeader::step(Trainer& trainer, std::span<const PackedBatch> micro_batches,
                            uint64_t position) {
  RankWord word;
  word.kind = RankWord::Kind::step;
  word.position = position;
  word.progress = trainer.progress;
  return together(word, [&] { return trainer.step(micro_batches); });
}

void RankLeader::load(const std::filesystem::path& checkpoint) {
  RankWord word;
  word.kind = RankWord::Kind::load;
  together(word, [&] { comm_.broadcast_text(std::filesystem::absolute(checkpoint).string()); });
}

}  // namespace nibble
