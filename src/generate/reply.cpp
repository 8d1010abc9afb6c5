// SPDX-License-Identifier: MIT
#include "generate/reply.h"

#include <algorithm>

#include "core/error.h"

namespace nibble {

std::string_view finish_reason_name(FinishReason r) {
  switch (r) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context_full: return "context-full";
    case FinishReason::timeout: return "timeout";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::repetition: return "repetition";
    case FinishReason::collapse: return "collapse";
    case FinishReason::not_finite: return "not-finite";
  }
  return "?";
}

bool is_unhealthy(FinishReason r) {
  return r == FinishReason::collapse || r == FinishReason::not_finite;
}

bool tail_collapses(std::span<const int32_t> ids) {
  return int64_t(ids.size()) >= kCollapseRun &&
         std::ranges::all_of(ids.last(kCollapseRun), [](int32_t id) { return id == 0; });
}

bool tail_repeats(std::span<const int32_t> ids, int64_t longest, int64_t times) {
  const int64_t n = int64_t(ids.size());
  for (int64_t period = 1; period <= longest; ++period) {
    // One token again and again is common in honest text (dots, digits): ask for more of it.
    const int64_t span = period * (period == 1 ? 4 * times : times);
    if (span > n) continue;
    const auto tail = ids.last(size_t(span));
    const bool constant =
        std::all_of(tail.begin(), tail.end(), [&](int32_t id) { return id == tail[0]; });
    if (constant && period > 1) continue;  // judged as a single token
    bool same = true;
    for (int64_t i = n - span + period; same && i < n; ++i)
      same = ids[size_t(i)] == ids[size_t(i - period)];
    if (same) return true;
  }
  return false;
}

ReplyProgress::ReplyProgress(ReplyOptions options, TokenCallback on_token,
                             std::function<Clock::time_point()> clock)
    : options_(std::move(options)),
      on_token_(std::move(on_token)),
      clock_(std::move(clock)),
      start_(clock_()) {
  if (options_.max_tokens < 1) {
    throw_usage("max-tokens is {}, expected at least 1", options_.max_tokens);
  }
  sample_row(options_.sample, 0);  // refuses bad options before the prompt is computed
}

std::optional<FinishReason> ReplyProgress::take(int32_t id, int64_t room) {
  if (id < 0) return FinishReason::not_finite;
  if (std::ranges::find(options_.stop_ids, id) != options_.stop_ids.end()) {
    return FinishReason::stop;
  }
  ids_.push_back(id);
  if (on_token_ && !on_token_(id)) return FinishReason::cancelled;
  if (options_.check_collapse && tail_collapses(ids_)) return FinishReason::collapse;
  if (options_.stop_on_repetition && tail_repeats(ids_)) return FinishReason::repetition;
  if (tokens_left() < 1) return FinishReason::length;
  if (timed_out()) return FinishReason::timeout;
  if (room < 1) return FinishReason::context_full;
  return std::nullopt;
}

double ReplyProgress::seconds() const {
  return std::chrono::duration<double>(clock_() - start_).count();
}

bool ReplyProgress::timed_out() const {
  return options_.timeout_s > 0 && seconds() > options_.timeout_s;
}

}  // namespace nibble
