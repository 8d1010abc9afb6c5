// SPDX-License-Identifier: MIT
#include "serve/schedule/request_queue.h"

#include <algorithm>
#include <thread>
#include <tuple>

#include "serve/schedule/stream_job.h"

namespace nibble {

RequestQueue::RequestQueue(std::vector<Scheduler*> schedules,
                           const std::optional<Tokenizer>& tokenizer, int64_t most_waiting)
    : schedules_(std::move(schedules)), tokenizer_(tokenizer), most_waiting_(most_waiting) {}

RequestQueue::~RequestQueue() { end("the server has ended"); }

std::shared_ptr<ReplyStream> RequestQueue::submit(StreamRequest request) {
  std::vector<StreamRequest> one;
  one.push_back(std::move(request));
  return submit(std::move(one)).front();
}

std::vector<std::shared_ptr<ReplyStream>> RequestQueue::submit(
    std::vector<StreamRequest> requests) {
  std::vector<Job> jobs;
  std::vector<std::shared_ptr<ReplyStream>> streams;
  for (StreamRequest& r : requests) {
    schedules_.front()->check(r);  // replicas are alike
    if (!r.stop.empty() && !tokenizer_)
      throw_usage("stop texts need a tokenizer, and this model has none");
    jobs.push_back(std::make_unique<StreamJob>(std::move(r), tokenizer_));
    streams.push_back(jobs.back()->stream);
  }
  const auto n = int64_t(jobs.size());
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closing("the server is about to end and takes no more requests");
  const SchedulerCounts c = sum();
  const int64_t most = c.places + most_waiting_;
  if (n > most) {
    throw_usage("{} replies were asked for at once, and the server holds {} requests at most", n,
                most);
  }
  if (c.inside + n > most) {
    ++own_.refused;
    const double each = c.ended() > 0 ? c.request_s / double(c.ended()) : 1;
    throw QueueFull(
        fmt::format("{} requests are being answered or waiting, which is the limit", c.inside),
        int(std::clamp(each, 1.0, 60.0)));
  }
  for (Job& j : jobs) waiting_.push_back(std::move(j));
  give_out();
  return streams;
}

// Replicas that failed get nothing while another is sound. Of equals the one that has least to lose
// of its cache.
Scheduler* RequestQueue::best_for(const StreamJob& job) const {
  Scheduler* best = nullptr;
  Scheduler::Offer least;
  bool any_sound = false;
  for (Scheduler* const s : schedules_) {
    const Scheduler::Offer o = s->offer(job.to_feed());
    any_sound |= o.sound;
    if (!o.room) continue;
    const auto rank = [](const Scheduler::Offer& of) {
      return std::tuple(!of.sound, of.tokens, of.kept);
    };
    if (!best || rank(o) < rank(least)) best = s, least = o;
  }
  return best && !least.sound && any_sound ? nullptr : best;
}

void RequestQueue::give_out() {
  for (Job& j : waiting_) {
    if (const auto reason = j->unwanted()) drop(j, reason);
  }
  std::erase_if(waiting_, [](const Job& j) { return !j; });
  // In the order they came: whoever finds no place keeps those behind him waiting.
  while (!waiting_.empty()) {
    Scheduler* const to = best_for(*waiting_.front());
    if (!to) return;
    to->hand(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void RequestQueue::deal() {
  const std::lock_guard lock(mutex_);
  give_out();
}

void RequestQueue::drop(Job& job, std::optional<FinishReason> reason, const std::string& error) {
  ReplyEnd end = job->end(reason, error);
  own_.add(end);
  job->stream->finish(std::move(end));
  job.reset();
}

SchedulerCounts RequestQueue::sum() const {
  SchedulerCounts all = own_;
  all.inside = all.waiting = int64_t(waiting_.size());
  for (const Scheduler* s : schedules_) all.add(s->counts());
  return all;
}

SchedulerCounts RequestQueue::counts() const {
  const std::lock_guard lock(mutex_);
  return sum();
}

std::vector<SchedulerCounts> RequestQueue::each_count() const {
  std::vector<SchedulerCounts> all;
  for (const Scheduler* s : schedules_) all.push_back(s->counts());
  return all;
}

void RequestQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool RequestQueue::drain(std::chrono::milliseconds at_most) {
  close();
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (counts().inside > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return counts().inside == 0;
}

void RequestQueue::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (Job& j : waiting_) drop(j, std::nullopt, why);
  waiting_.clear();
}

}  // namespace nibble
