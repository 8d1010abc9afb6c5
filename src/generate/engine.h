// SPDX-License-Identifier: MIT
// One model, one cache, one sequence: a BatchEngine of one. Prompts go in whole, in chunks or token
// by token; the results are the same.
#pragma once
#include "generate/batch_engine.h"

namespace nibble {

class Engine {
 public:
  Engine(Backend& backend, const Model& model, const EngineOptions& options)
      : core_(backend, model, options, 1) {}

  // Appends `tokens` to the sequence. UsageError when a token is outside the vocabulary or the
  // context is full. `stop` is asked between chunks; when it says true nothing is appended and the
  // result is false.
  bool feed(std::span<const int32_t> tokens, const std::function<bool()>& stop = {}) {
    return core_.feed(0, tokens, stop);
  }
  // The token to follow what was fed last, chosen by the backend; -1 where the logits are not
  // finite.
  int32_t sample(const SampleOptions& options, uint64_t draw) {
    return core_.sample(options, draw);
  }
  // feed of one token and sample, as one sequence of ops that the backend may record. See
  // BatchEngine::step for what follows.
  int32_t step(int32_t id, const SampleOptions& options, uint64_t draw,
               Follow follow = Follow::unknown) {
    const DecodeStep step{0, id, options, draw};
    return core_.step(std::span(&step, 1), follow)[0];
  }
  DecodeWay decode_way() { return core_.decode_way(1); }
  // The logits [V] after the last token, brought to host memory; valid until the next call.
  std::span<const float> logits() { return logits_ = core_.logits(); }

  // feed and logits; empty when `stop` said true.
  std::span<const float> extend(std::span<const int32_t> tokens,
                                const std::function<bool()>& stop = {}) {
    if (!feed(tokens, stop)) return {};
    return logits();
  }
  // The same, with the logits of every new token: [tokens, V].
  std::vector<float> extend_all(std::span<const int32_t> tokens) {
    return core_.feed_all(0, tokens);
  }

  void reset() { truncate(0); }
  void truncate(int64_t length) { core_.truncate(0, length); }  // forgets tokens from there on
  // The tokens whose keys and values are in the cache, in order.
  const std::vector<int32_t>& tokens() const { return core_.tokens(0); }
  int64_t length() const { return core_.length(0); }
  int64_t room() const { return core_.room(0); }

  void read_cache(const std::function<void(std::span<const std::byte>)>& part) {
    core_.read_cache(0, part);
  }
  void write_cache(std::span<const int32_t> tokens,
                   const std::function<void(std::span<std::byte>)>& fill) {
    core_.write_cache(0, tokens, fill);
  }

  void set_chunk(int64_t chunk) { core_.set_chunk(chunk); }
  const EngineOptions& options() const { return core_.options(); }
  const Config& config() const { return core_.config(); }
  Backend& backend() { return core_.backend(); }

 private:
  BatchEngine core_;
  std::vector<float> logits_;
};

}  // namespace nibble
