// SPDX-License-Identifier: MIT
#include "job/ranks/follow.h"

#include <memory>

#include "comm/process_ranks.h"
#include "core/error.h"
#include "job/ranks/rank_words.h"

namespace nibble {
namespace {

// A state with all that works on it, in the order in which it comes and goes.
struct Attempt {
  TrainState state;
  RankExchange exchange;
  Trainer trainer;
  Attempt(Comm& comm, const TrainInputs& in, const TrainSetup& s)
      : state(*s.backend, in.config, *in.source, s.settings, s.as_trained,
              s.teacher ? s.teacher->source.get() : nullptr),
        exchange(comm, state),
        trainer(state, &exchange) {}
};

}  // namespace

int64_t micro_batches_of(const TrainJob& job) {
  const int64_t asked = job.batch.accumulate;
  if (!job.ranks) return asked;
  const int64_t ranks = job.ranks->size();
  if (asked == 1) return ranks;
  if (asked % ranks != 0) {
    throw_usage(
        "--accumulate {} micro-batches cannot be shared equally by {} ranks: take a multiple of {}",
        asked, ranks, ranks);
  }
  return asked;
}

void follow(const TrainJob& job, const TrainInputs& in, const TrainSetup& setup,
            JobBatches& batches, JobEvents& events) {
  Comm& comm = *job.ranks;
  std::vector<PackedBatch> micro(size_t(job.batch.accumulate));
  for (PackedBatch& b : micro) reserve(b, batches.train->bounds());
  std::unique_ptr<Attempt> attempt;
  // A stop is rank 0's to ask for: here requests only do not end the process.
  struct Held {
    JobEvents& events;
    explicit Held(JobEvents& e) : events(e) { events.steps_begin(); }
    ~Held() { events.steps_end(); }
  } const held(events);
  for (;;) {
    const RankWord word = pass_word(comm, {});
    if (!attempt && word.kind != RankWord::Kind::begin && word.kind != RankWord::Kind::end) {
      throw_internal("rank 0 says {} before there is a state", int(word.kind));
    }
    switch (word.kind) {
      case RankWord::Kind::begin:
        attempt.reset();
        attempt = std::make_unique<Attempt>(comm, in, setup);
        break;
      case RankWord::Kind::step: {
        attempt->trainer.progress = word.progress;
        uint64_t position = word.position;
        for (PackedBatch& b : micro) position = batches.train->next(b, position);
        attempt->trainer.step(micro);
        break;
      }
      case RankWord::Kind::fetch:
        attempt->exchange.fetch(word.what, size_t(word.param), word.at, word.bytes, {});
        break;
      case RankWord::Kind::lend: attempt->exchange.lend_block(int64_t(word.at)); break;
      case RankWord::Kind::load:
        load_checkpoint_tensors(comm.broadcast_text({}), attempt->state);
        break;
      case RankWord::Kind::end: ranks_are_done(true); return;
    }
  }
}

}  // namespace nibble
