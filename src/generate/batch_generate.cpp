// SPDX-License-Identifier: MIT
#include "generate/batch_generate.h"

#include <atomic>
#include <mutex>
#include <optional>

#include "core/threads/share_out.h"

namespace nibble {
namespace {

// One prompt on its way.
struct Running {
  size_t prompt = 0;
  ReplyProgress reply;
};

// What the engines have in common.
struct BatchWork {
  std::span<const BatchPrompt> prompts;
  const BatchGenerateOptions& options;
  const std::function<bool(int64_t)>& on_reply;
  std::vector<BatchReply> replies;  // each is written by whoever took its prompt
  std::atomic<size_t> next{0};      // prompt that nobody has taken
  std::atomic<bool> wanted{true};
  std::mutex mutex = {};  // guards what follows, and on_reply
  int64_t done = 0;

  void reply_done() {
    const std::lock_guard lock(mutex);
    ++done;
    if (on_reply && !on_reply(done)) wanted = false;
  }
};

class BatchRun final {
 public:
  BatchRun(BatchEngine& engine, BatchWork& work)
      : engine_(engine), work_(work), running_(size_t(engine.sequences())) {
    for (int64_t s = 0; s < engine.sequences(); ++s) engine_.truncate(s, 0);
  }

  void run() {
    for (;;) {
      for (size_t s = 0; work_.wanted && s < running_.size(); ++s) {
        // A reply may end with its first token, so that a place is filled more than once.
        while (work_.wanted && !running_[s] && start(s)) {
          if (!running_[s]) work_.reply_done();
        }
      }
      steps_.clear();
      for (size_t s = 0; work_.wanted && s < running_.size(); ++s) {
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
        if (!running_[s]) work_.reply_done();
      }
    }
    for (const auto& r : running_) {
      if (r) work_.replies[r->prompt].ids = r->reply.ids();  // cancelled: as far as it came
    }
    for (int64_t s = 0; s < engine_.sequences(); ++s) engine_.truncate(s, 0);
  }

 private:
  ReplyOptions options_of(size_t prompt) const {
    ReplyOptions o;
    o.max_tokens = work_.prompts[prompt].max_tokens;
    o.stop_on_repetition = work_.prompts[prompt].stop_on_repetition;
    o.stop_ids = work_.options.stop_ids;
    o.sample = work_.options.sample;
    o.sample.seed += prompt;
    return o;
  }

  // False: there is no prompt left.
  bool start(size_t sequence) {
    const size_t p = work_.next++;
    if (p >= work_.prompts.size()) return false;
    running_[sequence].emplace(Running{p, ReplyProgress(options_of(p))});
    engine_.feed(int64_t(sequence), work_.prompts[p].ids);
    ReplyProgress& reply = running_[sequence]->reply;
    take(sequence, engine_.sample(reply.sample(), reply.next_draw()));
    return true;
  }

  // Takes the chosen token in and frees the sequence where that ends its reply.
  void take(size_t sequence, int32_t id) {
    Running& r = *running_[sequence];
    const auto reason = r.reply.take(id, engine_.room(int64_t(sequence)));
    if (!reason) return;
    work_.replies[r.prompt] = {r.reply.ids(), *reason};
    running_[sequence].reset();
    engine_.truncate(int64_t(sequence), 0);
  }

  BatchEngine& engine_;
  BatchWork& work_;
  std::vector<std::optional<Running>> running_;  // by sequence
  std::vector<DecodeStep> steps_;
};

}  // namespace

std::vector<BatchReply> generate_batch(Engines engines, std::span<const BatchPrompt> prompts,
                                       const BatchGenerateOptions& options,
                                       const std::function<bool(int64_t)>& on_reply) {
  BatchWork work{prompts, options, on_reply, {}};
  work.replies.resize(prompts.size(), {{}, FinishReason::cancelled});
  const auto n = int64_t(engines.size());
  share_out(n, engines.size(), [&](size_t taker, int64_t, int64_t) {
    try {
      BatchRun(*engines[taker], work).run();
    } catch (...) {
      work.wanted = false;  // of the others, too
      throw;
    }
  });
  return std::move(work.replies);
}

std::vector<BatchReply> generate_batch(BatchEngine& engine, std::span<const BatchPrompt> prompts,
                                       const BatchGenerateOptions& options,
                                       const std::function<bool(int64_t)>& on_reply) {
  BatchEngine* const one = &engine;
  return generate_batch(Engines(&one, 1), prompts, options, on_reply);
}

}  // namespace nibble
