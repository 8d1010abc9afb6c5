// SPDX-License-Identifier: MIT
// Continuous batching: requests join and leave between the steps of one BatchEngine. A tick feeds
// at most one chunk of one prompt and takes one step of every reply that is on its way, so that a
// long prompt costs the others a chunk's time and not its own. Where the cache is a pool of blocks
// a request waits until there is room for its prompt; when replies outgrow the pool the youngest
// gives its blocks back and waits at the head of the queue (docs/adr/0024-cache-pool.md).
// Requests come out of a RequestQueue, which several schedules may share. Everything but check(),
// hand(), offer() and counts() belongs to the one thread that owns the backend.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/schedule/places.h"
#include "serve/schedule/reply_stream.h"
#include "serve/schedule/schedule_counts.h"

namespace nibble {

class StreamJob;

struct SchedulerOptions {
  int64_t chunk_beside = 128;  // tokens of a prompt between two steps of other replies; 0: as alone
  bool reuse = true;           // what the cache has of a prompt is not computed again
  // How often a device that failed is tried while nothing runs there.
  std::chrono::milliseconds try_again{5000};
};

class Scheduler {
 public:
  using Job = std::unique_ptr<StreamJob>;
  // The engine outlives it.
  Scheduler(BatchEngine& engine, const SchedulerOptions& options);
  ~Scheduler();

  // Any thread. UsageError for what can never run here.
  void check(const StreamRequest& request) const;
  // What a request would meet here.
  struct Offer {
    bool room = false;   // a place is free and nobody waits for one
    bool sound = false;  // the last thing the device did went well
    // Where there is room: tokens that are to be run before its reply, and what other replies
    // count for.
    int64_t tokens = 0;
    int64_t kept = 0;  // tokens in the cache, which others may ask for again
  };
  Offer offer(std::span<const int32_t> prompt) const;
  void hand(Job job);
  SchedulerCounts counts() const;

  // The engine's thread. One chunk and one step; false: there was nothing to do.
  bool tick();
  // Until there is a request, or `at_most` has passed.
  void wait(std::chrono::milliseconds at_most);
  // Ends every request with this error.
  void end_all(const std::string& why);
  // Likewise, because the device failed beyond any one request.
  void fail(const std::string& why);

 private:
  struct Feeding {
    std::vector<int32_t> tokens;
    int64_t fed = 0;  // of them
  };
  static Feeding feeding(const StreamJob& job);
  void take_incoming();
  void drop_unwanted();
  void admit();
  bool reuses(const StreamJob& job) const;
  bool has_room_for(const StreamJob& job, int64_t place) const;
  void keep_beginning(int64_t place);
  bool make_room(int64_t place, int64_t tokens);
  void make_room_for_step();
  int64_t youngest() const;
  void preempt(int64_t place);
  StreamJob* next_to_feed();
  int64_t place_of(const StreamJob& job) const;
  bool feed();
  void feed_chunk(StreamJob& job, int64_t place);
  void feed_with_facts(StreamJob& job, int64_t place, std::span<const int32_t> tokens);
  bool step();
  void take_on_host(int64_t place, std::vector<float> logits);
  void take(int64_t place, int32_t id);
  void finish(Job& job, std::optional<FinishReason> reason, const std::string& error = "");
  void leave(int64_t place, std::optional<FinishReason> reason, const std::string& error = "");
  void count_now();
  void set_broken(const std::string& why);
  bool try_again();

  BatchEngine& engine_;
  SchedulerOptions options_;
  int64_t context_, vocabulary_;
  Places places_;
  std::deque<Job> waiting_;
  std::vector<Job> running_;     // by place
  std::deque<int64_t> feeding_;  // places, the oldest request first
  std::vector<DecodeStep> steps_;
  uint64_t turns_ = 0;
  std::chrono::steady_clock::time_point failed_at_;  // what broken is about
  bool shortest_ = false;  // whose turn it is to be fed: the oldest prompt, or the shortest

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::vector<Job> incoming_;
  std::vector<Feeding> ahead_;  // what is to be fed, when the last tick ended; without incoming_
  int64_t inside_ = 0;          // requests that have not ended
  bool crowded_ = false;        // some wait for room in the cache
  SchedulerCounts counts_;
};

}  // namespace nibble
