// SPDX-License-Identifier: MIT
#include "serve/schedule/scheduler.h"

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "serve/schedule/stream_job.h"

namespace nibble {

Scheduler::Scheduler(BatchEngine& engine, const std::optional<Tokenizer>& tokenizer,
                     const SchedulerOptions& options)
    : engine_(engine),
      tokenizer_(tokenizer),
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
  if (!r.stop.empty() && !tokenizer_)
    throw_usage("stop texts need a tokenizer, and this model has none");
}

std::shared_ptr<ReplyStream> Scheduler::submit(StreamRequest request) {
  std::vector<StreamRequest> one;
  one.push_back(std::move(request));
  return submit(std::move(one)).front();
}

std::vector<std::shared_ptr<ReplyStream>> Scheduler::submit(std::vector<StreamRequest> requests) {
  std::vector<Job> jobs;
  std::vector<std::shared_ptr<ReplyStream>> streams;
  for (StreamRequest& r : requests) {
    check(r);
    jobs.push_back(std::make_unique<StreamJob>(std::move(r), tokenizer_));
    streams.push_back(jobs.back()->stream);
  }
  const auto n = int64_t(jobs.size());
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw Closing("the server is about to end and takes no more requests");
    const int64_t most = counts_.places + options_.most_waiting;
    if (n > most) {
      throw_usage("{} replies were asked for at once, and the server holds {} requests at most", n,
                  most);
    }
    if (inside_ + n > most) {
      ++counts_.refused;
      uint64_t done = 0;
      for (const auto& [reason, count] : counts_.finished) done += count;
      const double each = done > 0 ? counts_.request_s / double(done) : 1;
      throw QueueFull(
          fmt::format("{} requests are being answered or waiting, which is the limit", inside_),
          int(std::clamp(each, 1.0, 60.0)));
    }
    inside_ += n;
    counts_.waiting += n;
    for (Job& j : jobs) incoming_.push_back(std::move(j));
  }
  work_.notify_all();
  return streams;
}

void Scheduler::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

SchedulerCounts Scheduler::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Scheduler::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, at_most, [&] { return !incoming_.empty(); });
}

void Scheduler::take_incoming() {
  const std::lock_guard lock(mutex_);
  for (Job& j : incoming_) waiting_.push_back(std::move(j));
  incoming_.clear();
}

void Scheduler::drop_unwanted() {
  const auto unwanted = [](const StreamJob& j) -> std::optional<FinishReason> {
    if (j.stream->cancelled()) return FinishReason::cancelled;
    // A reply on its way is asked by ReplyProgress, after its token.
    if (!j.decoding() && j.progress.timed_out()) return FinishReason::timeout;
    return std::nullopt;
  };
  for (Job& j : waiting_) {
    if (const auto reason = unwanted(*j)) finish(j, reason);
  }
  std::erase_if(waiting_, [](const Job& j) { return !j; });
  for (size_t p = 0; p < running_.size(); ++p) {
    if (!running_[p]) continue;
    if (const auto reason = unwanted(*running_[p])) leave(int64_t(p), reason);
  }
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    StreamJob& job = *waiting_.front();
    const int64_t place = places_.find(job.to_feed());
    if (place < 0 || !has_room_for(job, place)) return;
    if (job.turn == 0) job.turn = ++turns_;
    places_.take(place);
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
  return fed || stepped;
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
  ReplyEnd end{reason,
               error,
               job->text.flush(),
               job->facts,
               int64_t(job->request.prompt.size()),
               job->reused,
               int64_t(job->progress.ids().size()),
               job->first_token_s,
               job->progress.seconds()};
  {
    const std::lock_guard lock(mutex_);
    --inside_;
    ++counts_.finished[reason ? std::string(finish_reason_name(*reason)) : "error"];
    counts_.first_token_s += end.first_token_s;
    counts_.request_s += end.seconds;
    counts_.tokens += uint64_t(end.tokens);
    counts_.reused_tokens += uint64_t(end.reused_tokens);
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

}  // namespace nibble
