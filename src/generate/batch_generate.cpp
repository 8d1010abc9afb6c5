// SPDX-License-Identifier: MIT
#include "generate/batch_generate.h"

#include <algorithm>
#include <optional>

namespace nibble {
namespace {

// One prompt on its way.
struct Running {
  size_t prompt = 0;
  int32_t next = -1;  // chosen, not yet judged
  uint64_t draw = 0;
};

constexpr size_t kCollapseRun = 4;
constexpr int64_t kLongestPeriod = 32, kRepeats = 4;

class BatchRun final {
 public:
  BatchRun(BatchEngine& engine, std::span<const BatchPrompt> prompts,
           const BatchGenerateOptions& options)
      : engine_(engine),
        prompts_(prompts),
        options_(options),
        replies_(prompts.size(), {{}, FinishReason::cancelled}),
        running_(size_t(engine.sequences())) {
    for (int64_t s = 0; s < engine.sequences(); ++s) engine_.truncate(s, 0);
  }

  std::vector<BatchReply> run(const std::function<bool(int64_t)>& on_reply) {
    const auto go_on = [&] { return !on_reply || on_reply(int64_t(done_)); };
    bool wanted = true;
    for (;;) {
      for (size_t s = 0; wanted && s < running_.size(); ++s) {
        // A reply may end with its first token, so that a place is filled more than once.
        while (wanted && !running_[s] && next_ < prompts_.size()) {
          start(s);
          if (!running_[s]) wanted = go_on();
        }
      }
      steps_.clear();
      for (size_t s = 0; wanted && s < running_.size(); ++s) {
        if (running_[s]) {
          Running& r = *running_[s];
          steps_.push_back({int64_t(s), r.next, sample_of(r.prompt), r.draw++});
        }
      }
      if (steps_.empty()) break;
      const std::span<const int32_t> chosen = engine_.step(steps_);
      for (size_t i = 0; i < steps_.size(); ++i) {
        const auto s = size_t(steps_[i].sequence);
        running_[s]->next = chosen[i];
        judge(s);
        if (!running_[s]) wanted = go_on() && wanted;
      }
    }
    for (int64_t s = 0; s < engine_.sequences(); ++s) engine_.truncate(s, 0);
    return std::move(replies_);
  }

 private:
  SampleOptions sample_of(size_t prompt) const {
    SampleOptions o = options_.sample;
    o.seed += prompt;
    return o;
  }

  void start(size_t sequence) {
    const size_t p = next_++;
    engine_.feed(int64_t(sequence), prompts_[p].ids);
    running_[sequence] = Running{p, engine_.sample(sample_of(p), 0), 1};
    judge(sequence);
  }

  // Takes the chosen token in and ends the reply where it is to end; the order of the questions is
  // that of generate().
  void judge(size_t sequence) {
    const Running& r = *running_[sequence];
    const BatchPrompt& p = prompts_[r.prompt];
    std::vector<int32_t>& ids = replies_[r.prompt].ids;
    const auto end = [&](FinishReason reason) {
      replies_[r.prompt].reason = reason;
      running_[sequence].reset();
      engine_.truncate(int64_t(sequence), 0);
      ++done_;
    };
    if (r.next < 0) return end(FinishReason::not_finite);
    if (std::ranges::find(options_.stop_ids, r.next) != options_.stop_ids.end()) {
      return end(FinishReason::stop);
    }
    ids.push_back(r.next);
    if (ids.size() >= kCollapseRun &&
        std::all_of(ids.end() - kCollapseRun, ids.end(), [](int32_t id) { return id == 0; })) {
      return end(FinishReason::collapse);
    }
    if (p.stop_on_repetition && tail_repeats(ids, kLongestPeriod, kRepeats)) {
      return end(FinishReason::repetition);
    }
    if (int64_t(ids.size()) >= p.max_tokens) return end(FinishReason::length);
    if (engine_.room(int64_t(sequence)) < 1) return end(FinishReason::context_full);
  }

  BatchEngine& engine_;
  std::span<const BatchPrompt> prompts_;
  const BatchGenerateOptions& options_;
  std::vector<BatchReply> replies_;
  std::vector<std::optional<Running>> running_;  // by sequence
  std::vector<DecodeStep> steps_;
  size_t next_ = 0, done_ = 0;
};

}  // namespace

std::vector<BatchReply> generate_batch(BatchEngine& engine, std::span<const BatchPrompt> prompts,
                                       const BatchGenerateOptions& options,
                                       const std::function<bool(int64_t)>& on_reply) {
  return BatchRun(engine, prompts, options).run(on_reply);
}

}  // namespace nibble
