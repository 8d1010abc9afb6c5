// SPDX-License-Identifier: MIT
// The parts of a tick that run the model: a chunk of a prompt, and a step of all replies.
#include <algorithm>

#include "core/log.h"
#include "serve/schedule/scheduler.h"
#include "serve/schedule/stream_job.h"

namespace nibble {

// The likelihoods of a prompt's tokens are known only when it is run, the first time.
bool Scheduler::reuses(const StreamJob& job) const {
  return options_.reuse && (!job.request.prompt_logprobs || job.goes_on());
}

// The oldest prompt and the shortest in turns: nobody starves, and a question does not wait for a
// book. One that shares its beginning with an older one waits until that is there to be copied.
StreamJob* Scheduler::next_to_feed() {
  constexpr size_t kCandidates = 8;  // to look at all of hundreds would cost more than it brings
  std::vector<StreamJob*> ready;
  for (auto at = feeding_.begin(); at != feeding_.end() && ready.size() < kCandidates; ++at) {
    StreamJob* const job = running_[size_t(*at)].get();
    const std::span<const int32_t> prompt = job->to_feed();
    bool waits = false;
    if (!job->started && reuses(*job)) {
      const int64_t cached = places_.cached(prompt);
      for (auto older = feeding_.begin(); older != at; ++older) {
        const auto other = running_[size_t(*older)]->to_feed();
        waits |= common_prefix(prompt, other) > cached + Places::kWorthCopying;
      }
    }
    if (!waits) ready.push_back(job);
  }
  if (ready.empty()) return nullptr;
  shortest_ = !shortest_;
  if (!shortest_) return ready.front();
  return *std::ranges::min_element(ready, {}, [](StreamJob* j) { return j->left_to_feed(); });
}

int64_t Scheduler::place_of(const StreamJob& job) const {
  for (size_t p = 0; p < running_.size(); ++p) {
    if (running_[p].get() == &job) return int64_t(p);
  }
  return -1;
}

bool Scheduler::feed() {
  StreamJob* const job = next_to_feed();
  if (!job) return false;
  const int64_t place = place_of(*job);
  try {
    feed_chunk(*job, place);
  } catch (const std::exception& e) {
    log_warning("a prompt could not be run: {}", e.what());
    set_broken(e.what());  // before the place is free: nobody else is to be sent to it
    engine_.truncate(place, 0);
    if (running_[size_t(place)]) leave(place, std::nullopt, e.what());
  }
  return true;
}

void Scheduler::feed_chunk(StreamJob& job, int64_t place) {
  const std::span<const int32_t> prompt = job.to_feed();
  const bool facts = job.request.prompt_logprobs && !job.goes_on();
  if (!job.started) {
    job.started = true;
    if (reuses(job)) {
      job.fed = places_.settle(place, prompt);
      if (job.again.empty()) job.reused = job.fed;
    } else {
      engine_.truncate(place, 0);
    }
    // What was given back just now is still there.
    if (!engine_.cache().hold(place, int64_t(prompt.size())))
      throw_internal("no room for a prompt");
  }
  int64_t chunk = engine_.options().chunk > 0 ? engine_.options().chunk : job.left_to_feed();
  const bool beside = places_.free_count() + int64_t(feeding_.size()) < engine_.sequences();
  if (beside && options_.chunk_beside > 0) chunk = std::min(chunk, options_.chunk_beside);
  chunk = std::min(chunk, job.left_to_feed());
  const auto part = prompt.subspan(size_t(job.fed), size_t(chunk));
  const bool last = chunk == job.left_to_feed();
  job.fed += chunk;
  {
    const std::lock_guard lock(mutex_);
    counts_.prompt_tokens += uint64_t(chunk);
  }
  if (last) std::erase(feeding_, place);
  if (facts) return feed_with_facts(job, place, part);
  if (!last || job.goes_on()) return engine_.feed_part(place, part);
  engine_.feed(place, part);
  if (job.request.prompt_only) return leave(place, FinishReason::length);
  if (job.choice.on_host()) return take_on_host(place, engine_.logits_of(0));
  take(place, engine_.sample(job.progress.sample(), job.progress.next_draw()));
}

// Row i says how likely the token behind the i-th was; the last row, what the reply begins with.
void Scheduler::feed_with_facts(StreamJob& job, int64_t place, std::span<const int32_t> tokens) {
  const std::vector<float> all = engine_.feed_all(place, tokens);
  const auto V = size_t(vocabulary_);
  const std::span<const int32_t> prompt = job.request.prompt;
  const size_t first = size_t(job.fed) - tokens.size();
  const int top = job.request.top_logprobs.value_or(0);
  for (size_t i = 0; i < tokens.size() && first + i + 1 < prompt.size(); ++i) {
    if (int64_t(first + i) < job.facts_told) continue;  // before its blocks were given back
    ++job.facts_told;
    job.stream->push_prompt_facts(
        token_facts(std::span(all).subspan(i * V, V), prompt[first + i + 1], top));
  }
  if (job.left_to_feed() > 0) return;
  if (job.request.prompt_only) return leave(place, FinishReason::length);
  take_on_host(place, {all.end() - std::ptrdiff_t(V), all.end()});
}

// A rule that cannot go on ends its own reply and nobody else's.
void Scheduler::take_on_host(int64_t place, std::vector<float> logits) {
  StreamJob& job = *running_[size_t(place)];
  const std::optional<int> top = job.request.top_logprobs;
  int32_t id = -1;
  try {
    std::vector<float> raw;
    if (top) raw = logits;
    id = job.choice.choose(logits, engine_.tokens(place), job.progress.next_draw());
    if (top && id >= 0) job.facts = token_facts(raw, id, *top);
  } catch (const Error& e) {
    return leave(place, std::nullopt, e.what());
  }
  take(place, id);
}

bool Scheduler::step() {
  make_room_for_step();
  steps_.clear();
  for (size_t p = 0; p < running_.size(); ++p) {
    if (!running_[p] || !running_[p]->decoding()) continue;
    StreamJob& job = *running_[p];
    DecodeStep d{int64_t(p), job.progress.ids().back(), {}, 0};
    if (!job.choice.on_host()) {
      d.sample = job.progress.sample();
      d.draw = job.progress.next_draw();
    }
    steps_.push_back(d);
  }
  if (steps_.empty()) return false;
  const StreamJob& first = *running_[size_t(steps_[0].sequence)];
  const bool alone = steps_.size() == 1 && feeding_.empty() && !first.choice.on_host() &&
                     first.progress.tokens_left() > 1;
  try {
    const auto ids = engine_.step(steps_, alone ? Follow::chosen : Follow::unknown);
    {
      const std::lock_guard lock(mutex_);  // before a reader of the last token can ask
      counts_.stepped += steps_.size();
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      const int64_t place = steps_[i].sequence;
      StreamJob& job = *running_[size_t(place)];
      if (job.choice.on_host()) {
        take_on_host(place, engine_.logits_of(int64_t(i)));
      } else {
        take(place, ids[i]);
      }
    }
    const std::lock_guard lock(mutex_);
    ++counts_.steps;
    counts_.broken.clear();
  } catch (const std::exception& e) {
    log_warning("a step of {} replies failed: {}", steps_.size(), e.what());
    set_broken(e.what());
    for (const DecodeStep& d : steps_) {
      engine_.truncate(d.sequence, 0);
      if (running_[size_t(d.sequence)]) leave(d.sequence, std::nullopt, e.what());
    }
  }
  return true;
}

}  // namespace nibble
