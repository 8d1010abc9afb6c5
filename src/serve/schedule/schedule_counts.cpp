// SPDX-License-Identifier: MIT
#include "serve/schedule/schedule_counts.h"

namespace nibble {

uint64_t SchedulerCounts::ended() const {
  uint64_t all = 0;
  for (const auto& [reason, n] : finished) all += n;
  return all;
}

void SchedulerCounts::add(const ReplyEnd& end) {
  ++finished[end.reason ? std::string(finish_reason_name(*end.reason)) : "error"];
  first_token_s += end.first_token_s;
  request_s += end.seconds;
  tokens += uint64_t(end.tokens);
  reused_tokens += uint64_t(end.reused_tokens);
}

void SchedulerCounts::add(const SchedulerCounts& o) {
  inside += o.inside, waiting += o.waiting, feeding += o.feeding, decoding += o.decoding;
  cached_tokens += o.cached_tokens, shared_tokens += o.shared_tokens, places += o.places,
      capacity += o.capacity;
  context = o.context;
  preempted += o.preempted, prompt_tokens += o.prompt_tokens, reused_tokens += o.reused_tokens;
  tokens += o.tokens, steps += o.steps, stepped += o.stepped, refused += o.refused;
  for (const auto& [reason, n] : o.finished) finished[reason] += n;
  first_token_s += o.first_token_s, request_s += o.request_s;
}

}  // namespace nibble
