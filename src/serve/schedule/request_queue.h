// SPDX-License-Identifier: MIT
// The one queue before a model's replicas: each is a schedule on a device of its own, and any may
// answer. A request waits here until a replica has a place for it, so nobody waits at one while
// another has nothing to do, and goes where the fewest tokens are to be run before its reply: what
// is in the cache there is none of them (docs/adr/0025-several-gpus-for-inference.md).
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "serve/schedule/scheduler.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// There is no room for another request now.
class QueueFull : public UsageError {
 public:
  QueueFull(const std::string& message, int retry_after_s)
      : UsageError(message), retry_after_s_(retry_after_s) {}
  int retry_after_s() const { return retry_after_s_; }

 private:
  int retry_after_s_;
};
// Requests are taken no longer: the server ends.
class Closing : public UsageError {
 public:
  using UsageError::UsageError;
};

// Any thread may call.
class RequestQueue {
 public:
  static constexpr int64_t kMostWaiting = 64;
  // Everything outlives it. `most_waiting`: requests beyond those that have a place.
  RequestQueue(std::vector<Scheduler*> schedules, const std::optional<Tokenizer>& tokenizer,
               int64_t most_waiting = kMostWaiting);
  ~RequestQueue();

  // All of the requests, or none: UsageError for what can never run, QueueFull, Closing.
  std::vector<std::shared_ptr<ReplyStream>> submit(std::vector<StreamRequest> requests);
  std::shared_ptr<ReplyStream> submit(StreamRequest request);
  // Gives those that wait to replicas with room; asked by each replica's thread after each tick.
  void deal();

  SchedulerCounts counts() const;                   // of all together
  std::vector<SchedulerCounts> each_count() const;  // of each replica

  void close();  // from now on nothing is taken
  // The same, and waits until every request has ended, `at_most` so long; whether they have.
  bool drain(std::chrono::milliseconds at_most);
  // The same, and those that wait here end with this error.
  void end(const std::string& why);

 private:
  using Job = Scheduler::Job;
  Scheduler* best_for(const StreamJob& job) const;
  void drop(Job& job, std::optional<FinishReason> reason, const std::string& error = "");
  SchedulerCounts sum() const;
  void give_out();

  std::vector<Scheduler*> schedules_;
  const std::optional<Tokenizer>& tokenizer_;
  int64_t most_waiting_;

  mutable std::mutex mutex_;  // guards what follows
  std::deque<Job> waiting_;
  bool closed_ = false;
  SchedulerCounts own_;  // of requests that never left the queue
};

}  // namespace nibble
