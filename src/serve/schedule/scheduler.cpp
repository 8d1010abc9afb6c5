// SPDX-License-Identifier: MIT
#include "serve/schedule/scheduler.h"

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "serve/schedule/stream_job.h"

namespace nibble {

namespace {

// A reply that is on its way costs whoever comes to its side about as much as so many tokens of a
// prompt: by so much must a cached beginning be longer to be worth a fuller replica.
constexpr int64_t kReplyWeighs = 64;

}  // namespace

Scheduler::Scheduler(BatchEngine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      context_(engine.options().context),
      vocabulary_(engine.config().V),
      places_(engine),
      running_(size_t(engine.sequences())) {
  counts_.places = engine.sequences();
  counts_.context = context_;
  const KvCache& cache = engine.cache();
  counts_.capacity = cache.block() > 0 ? cache.blocks().blocks() * cache.block() : cache.slots();
}

Scheduler::~Scheduler() { end_all("the server has ended"); }

// What the engine would refuse later is refused before it can end up in a batch with others.
void Scheduler::check(const StreamRequest& r) const {
  const auto check_id = [&](int32_t id, const char* what) {
    if (id >= 0 && id < vocabulary_) return;
    throw_usage("{} {} is outside the model's vocabulary of {}", what, id, vocabulary_);
  };
  if (r.prompt.empty()) throw_usage("there is nothing to run: the prompt has no tokens");
  for (const int32_t id : r.prompt) check_id(id, "token");
  for (const auto& [id, bias] : r.bias) {
    check_id(id, "logit_bias: token");
    if (!std::isfinite(bias)) throw_usage("logit_bias of token {} is not a number", id);
  }
  if (int64_t(r.prompt.size()) > context_) {
    throw_usage(
        "the prompt has {} tokens and the context holds {}: shorten it, or start the server with "
        "--context {}",
        r.prompt.size(), context_, r.prompt.size());
  }
  if (!std::isfinite(r.frequency_penalty) || !std::isfinite(r.presence_penalty))
    throw_usage("a penalty is not a number");
}

void Scheduler::hand(Job job) {
  {
    const std::lock_guard lock(mutex_);
    ++inside_;
    ++counts_.waiting;
    incoming_.push_back(std::move(job));
  }
  work_.notify_all();
}

Scheduler::Offer Scheduler::offer(std::span<const int32_t> prompt) const {
  const std::lock_guard lock(mutex_);
  Offer o;
  o.sound = counts_.broken.empty();
  o.kept = counts_.cached_tokens;
  o.room = inside_ < counts_.places && !crowded_;
  if (!o.room) return o;  // asked after every tick of a server that is full
  int64_t there = options_.reuse ? places_.promised(prompt) : 0;
  // What others have before them anyway and this one begins with, too, is run once.
  const auto beside = [&](std::span<const int32_t> other, int64_t fed) {
    const int64_t shared = options_.reuse ? common_prefix(other, prompt) : 0;
    there = std::max(there, shared);
    o.tokens += int64_t(other.size()) - std::max(fed, shared);
  };
  for (const Job& j : incoming_) beside(j->to_feed(), 0);
  for (const Feeding& f : ahead_) beside(f.tokens, f.fed);
  o.tokens += kReplyWeighs * inside_ + int64_t(prompt.size()) - there;
  return o;
}

Scheduler::Feeding Scheduler::feeding(const StreamJob& job) {
  const std::span<const int32_t> all = job.to_feed();
  return {{all.begin(), all.end()}, job.fed};
}

SchedulerCounts Scheduler::counts() const {
  const std::lock_guard lock(mutex_);
  SchedulerCounts now = counts_;
  now.inside = inside_;
  return now;
}

void Scheduler::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, at_most, [&] { return !incoming_.empty(); });
}

void Scheduler::take_incoming() {
  const std::lock_guard lock(mutex_);
  for (Job& j : incoming_) {
    ahead_.push_back(feeding(*j));
    waiting_.push_back(std::move(j));
  }
  incoming_.clear();
}

void Scheduler::drop_unwanted() {
  for (Job& j : waiting_) {
    if (const auto reason = j->unwanted()) finish(j, reason);
  }
  std::erase_if(waiting_, [](const Job& j) { return !j; });
  for (size_t p = 0; p < running_.size(); ++p) {
    if (!running_[p]) continue;
    if (const auto reason = running_[p]->unwanted()) leave(int64_t(p), reason);
  }
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    StreamJob& job = *waiting_.front();
    const int64_t place = places_.find(job.to_feed());
    if (place < 0 || !has_room_for(job, place)) return;
    if (job.turn == 0) job.turn = ++turns_;
    places_.take(place, job.to_feed());
    running_[size_t(place)] = std::move(waiting_.front());
    waiting_.pop_front();
    feeding_.push_back(place);
    keep_beginning(place);
    make_room(place, int64_t(job.to_feed().size()));
  }
}

bool Scheduler::tick() {
  take_incoming();
  drop_unwanted();
  admit();
  const bool fed = feed(), stepped = step();
  count_now();
  return fed || stepped || try_again();
}

void Scheduler::take(int64_t place, int32_t id) {
  StreamJob& job = *running_[size_t(place)];
  auto reason = job.progress.take(id, engine_.room(place));
  if (job.text.stopped()) reason = FinishReason::stop;
  if (reason) leave(place, reason);
}

void Scheduler::leave(int64_t place, std::optional<FinishReason> reason, const std::string& error) {
  finish(running_[size_t(place)], reason, error);
  std::erase(feeding_, place);
  places_.free(place);
}

void Scheduler::finish(Job& job, std::optional<FinishReason> reason, const std::string& error) {
  ReplyEnd end = job->end(reason, error);
  {
    const std::lock_guard lock(mutex_);
    --inside_;
    counts_.add(end);
  }
  job->stream->finish(std::move(end));
  job.reset();
}

void Scheduler::count_now() {
  const std::lock_guard lock(mutex_);
  counts_.waiting = int64_t(waiting_.size() + incoming_.size());
  counts_.feeding = int64_t(feeding_.size());
  counts_.decoding = counts_.places - places_.free_count() - counts_.feeding;
  counts_.cached_tokens = 0;
  for (int64_t p = 0; p < counts_.places; ++p) counts_.cached_tokens += engine_.length(p);
  const KvCache& cache = engine_.cache();
  counts_.shared_tokens = cache.block() > 0 ? cache.blocks().saved() * cache.block() : 0;
  counts_.cached_tokens -= counts_.shared_tokens;
  crowded_ = !waiting_.empty();
  ahead_.clear();
  for (const Job& j : waiting_) ahead_.push_back(feeding(*j));
  for (const int64_t p : feeding_) ahead_.push_back(feeding(*running_[size_t(p)]));
}

void Scheduler::end_all(const std::string& why) {
  take_incoming();
  for (Job& j : waiting_) finish(j, std::nullopt, why);
  waiting_.clear();
  for (size_t p = 0; p < running_.size(); ++p) {
    if (running_[p]) leave(int64_t(p), std::nullopt, why);
  }
  count_now();
}

void Scheduler::set_broken(const std::string& why) {
  failed_at_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  counts_.broken = why;
}

void Scheduler::fail(const std::string& why) {
  set_broken(why);
  end_all("the engine failed; the server's log says why");
}

// A token and a step of nobody's, where a device failed and nobody has asked it since: requests
// keep away from it while there are others, so it would never be seen to work again. Whether it
// does.
bool Scheduler::try_again() {
  if (places_.free_count() < engine_.sequences()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (counts_.broken.empty()) return false;
  }
  if (std::chrono::steady_clock::now() - failed_at_ < options_.try_again) return false;
  const std::vector<int32_t> token = {0};
  const int64_t place = places_.find(token);
  places_.take(place, token);
  std::string why;
  try {
    engine_.truncate(place, 0);
    make_room(place, 2);
    engine_.feed(place, token);
    const DecodeStep step{place, 0, {}, 0};
    engine_.step({&step, 1});
  } catch (const std::exception& e) {
    why = e.what();
  }
  engine_.truncate(place, 0);
  places_.free(place);
  set_broken(why);
  if (why.empty()) log_info("{} works again", engine_.backend().name());
  return why.empty();
}

}  // namespace nibble
