// SPDX-License-Identifier: MIT
#include "serve/api/metrics_text.h"

#include <fmt/format.h>

namespace nibble {

namespace {

void add_head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP nibble_{} {}\n# TYPE nibble_{} {}\n", name, help, name, type);
}

}  // namespace

std::string replica_metrics_text(std::span<const SchedulerCounts> each,
                                 std::span<const std::string> devices) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    add_head(out, name, type, help);
    for (size_t i = 0; i < each.size(); ++i) {
      out += fmt::format("nibble_{}{{replica=\"{}\",device=\"{}\"}} {}\n", name, i, devices[i],
                         value(each[i]));
    }
  };
  using Counts = const SchedulerCounts&;
  add("replica_up", "gauge", "1, or 0 after the model could not be run there",
      [](Counts c) { return int(c.broken.empty()); });
  add("replica_requests", "gauge", "Requests that are being answered there",
      [](Counts c) { return c.inside; });
  add("replica_cache_tokens", "gauge", "Tokens in its cache",
      [](Counts c) { return c.cached_tokens; });
  add("replica_prompt_tokens_total", "counter", "Tokens of prompts that were run there",
      [](Counts c) { return c.prompt_tokens; });
  add("replica_generated_tokens_total", "counter", "Tokens of replies that have ended there",
      [](Counts c) { return c.tokens; });
  add("replica_failed_total", "counter", "Requests that ended there with an error", [](Counts c) {
    const auto at = c.finished.find("error");
    return at == c.finished.end() ? uint64_t(0) : at->second;
  });
  return out;
}

std::string metrics_text(const SchedulerCounts& c) {
  std::string out;
  const auto head = [&](const char* name, const char* type, const char* help) {
    add_head(out, name, type, help);
  };
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    head(name, "gauge", help);
    out += fmt::format("nibble_{} {}\n", name, value);
  };
  const auto counter = [&](const char* name, const char* help, uint64_t value) {
    head(name, "counter", help);
    out += fmt::format("nibble_{} {}\n", name, value);
  };
  gauge("requests_waiting", "Requests without a place in the cache", c.waiting);
  gauge("requests_feeding", "Requests whose prompt is being run", c.feeding);
  gauge("requests_decoding", "Requests whose reply is on its way", c.decoding);
  gauge("cache_places", "Conversations the cache has room for", c.places);
  gauge("cache_tokens", "Tokens in the cache, those of ended requests included, shared ones once",
        c.cached_tokens);
  gauge("cache_shared_tokens", "Tokens that need no memory of their own: others have the same",
        c.shared_tokens);
  gauge("cache_capacity_tokens", "Tokens the cache has room for", c.capacity);
  counter("prompt_tokens_total", "Tokens of prompts that were run", c.prompt_tokens);
  counter("reused_tokens_total", "Tokens of prompts that the cache had", c.reused_tokens);
  counter("generated_tokens_total", "Tokens of replies that have ended", c.tokens);
  counter("steps_total", "Decoding steps", c.steps);
  counter("preempted_total",
          "Times a reply gave its room in the cache to older ones and went on later", c.preempted);
  counter("requests_refused_total", "Requests that found the queue full", c.refused);
  head("requests_total", "counter", "Requests that have ended, by reason");
  uint64_t all = 0;
  for (const auto& [reason, n] : c.finished) {
    out += fmt::format("nibble_requests_total{{reason=\"{}\"}} {}\n", reason, n);
    all += n;
  }
  const auto summary = [&](const char* name, const char* help, double sum) {
    head(name, "summary", help);
    out += fmt::format("nibble_{}_sum {:.6f}\nnibble_{}_count {}\n", name, sum, name, all);
  };
  summary("first_token_seconds", "From a request to the first token of its reply", c.first_token_s);
  summary("request_seconds", "From a request to its end", c.request_s);
  return out;
}

}  // namespace nibble
