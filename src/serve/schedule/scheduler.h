// SPDX-License-Identifier: MIT
// Continuous batching: requests join and leave between the steps of one BatchEngine. A tick feeds
// at most one chunk of one prompt and takes one step of every reply that is on its way, so that a
// long prompt costs the others a chunk's time and not its own. Where the cache is a pool of blocks
// a request waits until there is room for its prompt; when replies outgrow the pool the youngest
// gives its blocks back and waits at the head of the queue (docs/adr/0024-cache-pool.md).
// Everything but submit(), close() and
// counts() belongs to the one thread that owns the backend.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "serve/schedule/places.h"
#include "serve/schedule/reply_stream.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

class StreamJob;

struct SchedulerOptions {
  int64_t most_waiting = 64;   // requests beyond those that have a place
  int64_t chunk_beside = 128;  // tokens of a prompt between two steps of other replies; 0: as alone
  bool reuse = true;           // what the cache has of a prompt is not computed again
};

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

struct SchedulerCounts {
  int64_t waiting = 0, feeding = 0, decoding = 0;      // requests, now
  int64_t cached_tokens = 0, places = 0, context = 0;  // the cache, now
  int64_t shared_tokens = 0;  // that need no memory of their own: others have the same
  int64_t capacity = 0;       // tokens it has room for
  uint64_t preempted = 0;  // times a reply gave its room in the cache to older ones, to go on later
  uint64_t prompt_tokens = 0, reused_tokens = 0, tokens = 0, steps = 0;
  uint64_t stepped = 0;  // tokens that steps chose, of replies that go on, too
  uint64_t refused = 0;
  std::map<std::string, uint64_t> finished;  // by reason
  double first_token_s = 0, request_s = 0;   // sums over finished requests
  std::string broken;                        // the last error of the device; empty: none
};

class Scheduler {
 public:
  // Everything outlives it.
  Scheduler(BatchEngine& engine, const std::optional<Tokenizer>& tokenizer,
            const SchedulerOptions& options);
  ~Scheduler();

  // Any thread. All of the requests, or none: UsageError for what can never run, QueueFull,
  // Closing.
  std::vector<std::shared_ptr<ReplyStream>> submit(std::vector<StreamRequest> requests);
  std::shared_ptr<ReplyStream> submit(StreamRequest request);
  void close();  // from now on nothing is taken
  SchedulerCounts counts() const;
  int64_t context() const { return context_; }

  // The engine's thread. One chunk and one step; false: there was nothing to do.
  bool tick();
  // Until there is a request, or `at_most` has passed.
  void wait(std::chrono::milliseconds at_most);
  // Ends every request with this error.
  void end_all(const std::string& why);

 private:
  using Job = std::unique_ptr<StreamJob>;
  void check(const StreamRequest& request) const;
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

  BatchEngine& engine_;
  const std::optional<Tokenizer>& tokenizer_;
  SchedulerOptions options_;
  int64_t context_, vocabulary_;
  Places places_;
  std::deque<Job> waiting_;
  std::vector<Job> running_;     // by place
  std::deque<int64_t> feeding_;  // places, the oldest request first
  std::vector<DecodeStep> steps_;
  uint64_t turns_ = 0;
  bool shortest_ = false;  // whose turn it is to be fed: the oldest prompt, or the shortest

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::vector<Job> incoming_;
  int64_t inside_ = 0;  // requests that have not ended
  bool closed_ = false;
  SchedulerCounts counts_;
};

}  // namespace nibble
