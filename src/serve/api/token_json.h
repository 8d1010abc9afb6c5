// SPDX-License-Identifier: MIT
// Tokens and how likely they were, as the two kinds of OpenAI's replies show them.
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "serve/schedule/request.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

// The token's own bytes as text; those that are no text by themselves as "bytes:\xe2\x80".
std::string shown_token(const Tokenizer& tokenizer, int32_t id);

// {"token", "logprob", "bytes", "top_logprobs"} of a chat.
nlohmann::ordered_json chat_logprob(const Tokenizer& tokenizer, const TokenFacts& facts);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of a completion, token by token.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const Tokenizer& tokenizer, int64_t top) : tokenizer_(tokenizer), top_(top) {}
  void add_first(int32_t id);  // of a prompt: nothing is known of it
  void add(const TokenFacts& facts);
  // What was added since the last call; offsets count on.
  nlohmann::ordered_json take();
  void skip_text(const std::string& text);  // offsets begin behind it

 private:
  void add_token(int32_t id);
  const Tokenizer& tokenizer_;
  int64_t top_;
  int64_t offset_ = 0;
  struct Row {
    std::string token;
    int64_t offset = 0;
    std::optional<TokenFacts> facts;
  };
  std::vector<Row> rows_;
};

// JSON as text; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& j);
// An event of a stream: "data: ...\n\n".
std::string sse_event(const nlohmann::ordered_json& j);
inline constexpr const char* kSseDone = "data: [DONE]\n\n";
// The next events of an answer that streams; false: those were the last. `more` writes what has
// come and is false when every reply has ended, `last` what follows then. An error becomes an
// event.
bool next_sse(bool& done, std::string& out, const std::function<bool()>& more,
              const std::function<void()>& last);

}  // namespace nibble
