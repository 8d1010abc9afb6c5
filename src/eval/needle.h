// SPDX-License-Identifier: MIT
// Needle in a haystack: a secret is planted at the start of a conversation, filler is piled on top,
// and the model is asked for the secret.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/engine.h"

namespace nibble {

// Whom the test talks to.
class Conversation {
 public:
  virtual ~Conversation() = default;
  virtual int64_t count_tokens(std::string_view text) const = 0;
  // One user turn and the reply to it, of at most `max_tokens` tokens.
  virtual std::string ask(const std::string& text, int64_t max_tokens) = 0;
  virtual int64_t length() const = 0;  // tokens of the conversation so far
};

// How text becomes turns; the chat template and the tokenizer stay with the caller.
struct TurnEncoder {
  std::function<std::vector<int32_t>(std::string_view text)> encode;  // the text alone
  // A user turn up to where the reply begins.
  std::function<std::vector<int32_t>(std::string_view text)> user_turn;
  std::vector<int32_t> end_of_reply;  // what closes a reply
  std::function<std::string(std::span<const int32_t>)> decode;
  std::vector<int32_t> stop_ids;
};

enum class CacheUse {
  rebuild,     // every turn computes the whole conversation again
  persistent,  // every turn adds to the cache
};

// A greedy conversation with a model.
class EngineConversation final : public Conversation {
 public:
  EngineConversation(Engine& engine, TurnEncoder encoder, CacheUse use);
  int64_t count_tokens(std::string_view text) const override;
  std::string ask(const std::string& text, int64_t max_tokens) override;
  int64_t length() const override { return int64_t(history_.size()); }

 private:
  Engine& engine_;
  TurnEncoder encoder_;
  CacheUse use_;
  std::vector<int32_t> history_;
};

// Endless filler: the lines of a text round and round, or, without one, sentences of a made-up
// harbour log that never repeats.
class Haystack {
 public:
  explicit Haystack(std::string_view text = {});
  // Lines of about `tokens` tokens in all, at least one line.
  std::string next(int64_t tokens, const Conversation& counter);

 private:
  std::string next_line();
  std::vector<std::string> lines_;
  uint64_t at_ = 0;
};

struct NeedleOptions {
  std::string secret = "GEMINI-CODE-7788";
  int64_t target_tokens = 4000;  // length of the conversation when the question comes
  int64_t chunk_tokens = 500;    // filler per turn
  int64_t max_tokens = 50;       // of the answer
};

struct NeedleResult {
  bool found = false;
  std::string reply;
  int64_t tokens = 0;  // of the conversation when the question was asked
  int64_t chunks = 0;
};

bool reply_has_secret(std::string_view reply, std::string_view secret);

// `on_chunk` hears the length of the conversation after each chunk; may be empty.
NeedleResult run_needle(Conversation& conversation, Haystack& haystack,
                        const NeedleOptions& options,
                        const std::function<void(int64_t tokens)>& on_chunk = {});

}  // namespace nibble
