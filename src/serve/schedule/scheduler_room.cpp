// SPDX-License-Identifier: MIT
// Who has blocks of the pool, and who gives them back.
#include <algorithm>

#include "core/log.h"
#include "serve/schedule/scheduler.h"
#include "serve/schedule/stream_job.h"

namespace nibble {

// A request is let in when there is room for its prompt and everybody's next block: whoever comes
// must not push out, with his first tokens, those who are there, nor be pushed out by their next
// ones. Alone it has the whole pool, which is a context at least.
bool Scheduler::has_room_for(const StreamJob& job, int64_t place) const {
  const KvCache& cache = engine_.cache();
  if (cache.block() == 0 || places_.free_count() == engine_.sequences()) return true;
  const auto soon = [&](const StreamJob& j, int64_t tokens) {
    const int64_t more = std::min(j.progress.tokens_left(), cache.block());
    return cache.blocks_of(std::min(tokens + std::max<int64_t>(1, more), context_));
  };
  int64_t needed = soon(job, int64_t(job.to_feed().size()));
  if (reuses(job)) needed -= places_.shared_blocks(place, job.to_feed());
  for (size_t p = 0; p < running_.size(); ++p) {
    if (!running_[p]) continue;
    const auto other = int64_t(p), fed = int64_t(running_[p]->to_feed().size());
    const int64_t then = soon(*running_[p], std::max(fed, engine_.length(other)));
    needed += std::max<int64_t>(0, then - cache.blocks().held(other));
  }
  return needed <= places_.spare_blocks();
}

// What the cache has of a prompt stays from now on, whoever else forgets it: that much was counted.
void Scheduler::keep_beginning(int64_t place) {
  if (engine_.cache().block() == 0) return;
  const StreamJob& job = *running_[size_t(place)];
  if (reuses(job)) {
    places_.settle(place, job.to_feed());
  } else {
    engine_.truncate(place, 0);
  }
}

int64_t Scheduler::youngest() const {
  int64_t found = -1;
  for (size_t p = 0; p < running_.size(); ++p) {
    if (!running_[p]) continue;
    if (found < 0 || running_[p]->turn > running_[size_t(found)]->turn) found = int64_t(p);
  }
  return found;
}

// Blocks for `tokens` tokens of a place that is taken: free ones, then those that are kept in case
// they are wanted again, then those of the youngest. False: that was this place, and it waits now.
bool Scheduler::make_room(int64_t place, int64_t tokens) {
  while (!engine_.cache().hold(place, tokens)) {
    if (places_.forget_one()) continue;
    const int64_t victim = youngest();
    preempt(victim);
    if (victim == place) return false;
  }
  return true;
}

// The oldest first: whoever has to make room for them is not there any more when it is his turn.
void Scheduler::make_room_for_step() {
  if (engine_.cache().block() == 0) return;
  std::vector<int64_t> places;
  for (size_t p = 0; p < running_.size(); ++p) {
    if (running_[p] && running_[p]->decoding()) places.push_back(int64_t(p));
  }
  std::ranges::sort(places, {}, [&](int64_t p) { return running_[size_t(p)]->turn; });
  for (const int64_t p : places) {
    if (running_[size_t(p)]) make_room(p, engine_.length(p) + 1);
  }
}

// To the head of the queue: everybody who waits came later.
void Scheduler::preempt(int64_t place) {
  Job job = std::move(running_[size_t(place)]);
  std::erase(feeding_, place);
  engine_.truncate(place, 0);
  places_.free(place);
  job->begin_again();
  log_debug("the cache is full: a reply of {} tokens waits for room", job->progress.ids().size());
  waiting_.push_front(std::move(job));
  const std::lock_guard lock(mutex_);
  ++counts_.preempted;
}

}  // namespace nibble
