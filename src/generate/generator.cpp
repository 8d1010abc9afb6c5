// SPDX-License-Identifier: MIT
#include "generate/generator.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Four times token 0 in a row: the sign of NaN logits or misread scales in the predecessor's files.
constexpr int64_t kCollapseRun = 4;
constexpr int64_t kLongestPeriod = 32, kRepeats = 4;

bool collapsed(std::span<const int32_t> ids) {
  return int64_t(ids.size()) >= kCollapseRun &&
         std::all_of(ids.end() - kCollapseRun, ids.end(), [](int32_t id) { return id == 0; });
}

}  // namespace

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

GenerateResult generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& o,
                        const TokenCallback& on_token) {
  if (o.max_tokens < 1) throw_usage("max-tokens is {}, expected at least 1", o.max_tokens);
  GenerateResult result;
  sample_row(o.sample, 0);  // refuses bad options before the prompt is computed
  uint64_t draw = 0;
  const auto start = Clock::now();

  // In replay the sequence is kept here and run from its beginning for every token.
  std::vector<int32_t> sequence = engine.tokens();
  sequence.insert(sequence.end(), prompt.begin(), prompt.end());
  if (o.replay) engine.reset();
  const auto timed_out = [&] { return o.timeout_s > 0 && seconds_since(start) > o.timeout_s; };
  const bool fed = engine.feed(o.replay ? std::span<const int32_t>(sequence) : prompt, timed_out);
  int32_t id = fed ? engine.sample(o.sample, draw++) : -1;
  result.timing.prompt_tokens = int64_t(prompt.size());
  result.timing.prefill_s = seconds_since(start);
  if (!fed) {
    result.reason = FinishReason::timeout;
    return result;
  }
  const auto decode_start = Clock::now();

  for (;;) {
    if (id < 0) {
      result.reason = FinishReason::not_finite;
      break;
    }
    if (std::find(o.stop_ids.begin(), o.stop_ids.end(), id) != o.stop_ids.end()) {
      result.reason = FinishReason::stop;
      break;
    }
    result.ids.push_back(id);
    sequence.push_back(id);
    if (on_token && !on_token(id)) {
      result.reason = FinishReason::cancelled;
      break;
    }
    if (o.check_collapse && collapsed(result.ids)) {
      result.reason = FinishReason::collapse;
      break;
    }
    if (o.stop_on_repetition && tail_repeats(result.ids, kLongestPeriod, kRepeats)) {
      result.reason = FinishReason::repetition;
      break;
    }
    if (int64_t(result.ids.size()) >= o.max_tokens) {
      result.reason = FinishReason::length;
      break;
    }
    if (timed_out()) {
      result.reason = FinishReason::timeout;
      break;
    }
    if (engine.room() < 1) {
      result.reason = FinishReason::context_full;
      break;
    }
    if (o.replay) {
      engine.reset();
      engine.feed(sequence);
      id = engine.sample(o.sample, draw++);
    } else {
      const bool last = int64_t(result.ids.size()) + 1 >= o.max_tokens;
      id = engine.step(id, o.sample, draw++, last ? Follow::unknown : Follow::chosen);
    }
  }
  result.timing.generated_tokens = int64_t(result.ids.size());
  result.timing.decode_s = seconds_since(decode_start);
  return result;
}

}  // namespace nibble
