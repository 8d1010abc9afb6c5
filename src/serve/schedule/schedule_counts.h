// SPDX-License-Identifier: MIT
// What a schedule, or all behind one queue, have done and are doing.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "serve/schedule/reply_stream.h"

namespace nibble {

struct SchedulerCounts {
  int64_t waiting = 0, feeding = 0, decoding = 0;      // requests, when the last tick ended
  int64_t inside = 0;                                  // those that have not ended, now
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

  uint64_t ended() const;
  void add(const ReplyEnd& end);
  // Those of another schedule. `broken` stays: it is one device's.
  void add(const SchedulerCounts& other);
};

}  // namespace nibble
