// SPDX-License-Identifier: MIT
#include "generate/batch_generate.h"

#include <optional>

namespace nibble {
namespace {

// One prompt on its way.
struct Running {
  size_t prompt = 0;
  ReplyProgress reply;
};

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
          ReplyProgress& r = running_[s]->reply;
          steps_.push_back({int64_t(s), r.ids().back(), r.sample(), r.next_draw()});
        }
      }
      if (steps_.empty()) break;
      const std::span<const int32_t> chosen = engine_.step(steps_);
      for (size_t i = 0; i < steps_.size(); ++i) {
        const auto s = size_t(steps_[i].sequence);
        take(s, chosen[i]);
        if (!running_[s]) wanted = go_on() && wanted;
      }
    }
    for (const auto& r : running_) {
      if (r) replies_[r->prompt].ids = r->reply.ids();  // cancelled: as far as it came
    }
    for (int64_t s = 0; s < engine_.sequences(); ++s) engine_.truncate(s, 0);
    return std::move(replies_);
  }

 private:
  ReplyOptions options_of(size_t prompt) const {
    ReplyOptions o;
    o.max_tokens = prompts_[prompt].max_tokens;
    o.stop_on_repetition = prompts_[prompt].stop_on_repetition;
    o.stop_ids = options_.stop_ids;
    o.sample = options_.sample;
    o.sample.seed += prompt;
    return o;
  }

  void start(size_t sequence) {
    const size_t p = next_++;
    running_[sequence].emplace(Running{p, ReplyProgress(options_of(p))});
    engine_.feed(int64_t(sequence), prompts_[p].ids);
    ReplyProgress& reply = running_[sequence]->reply;
    take(sequence, engine_.sample(reply.sample(), reply.next_draw()));
  }

  // Takes the chosen token in and frees the sequence where that ends its reply.
  void take(size_t sequence, int32_t id) {
    Running& r = *running_[sequence];
    const auto reason = r.reply.take(id, engine_.room(int64_t(sequence)));
    if (!reason) return;
    replies_[r.prompt] = {r.reply.ids(), *reason};
    running_[sequence].reset();
    engine_.truncate(int64_t(sequence), 0);
    ++done_;
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
