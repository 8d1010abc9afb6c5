// SPDX-License-Identifier: MIT
// A conversation: messages in, replies out, with as much of the cache reused as its tokens allow.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/generator.h"
#include "tokenizer/chat_template.h"

namespace nibble {

// What a turn is made of when the cache already holds the conversation.
enum class HistoryMode {
  // The very tokens that were fed and generated, and only what follows is encoded; where the
  // template writes the conversation anew (drops old thoughts, say), as with `messages`.
  tokens,
  messages,  // the whole conversation is rendered again; the common prefix is reused
  both,      // like messages, and a warning where the two disagree
};

struct ChatSessionOptions {
  HistoryMode history = HistoryMode::tokens;
  bool persistent = true;  // false: every turn computes the whole conversation anew
  ChatTemplate style;
  ContentTokens content = ContentTokens::plain;
  std::vector<std::string> tools = {};  // as render() takes them
  std::optional<bool> thinking = {};
  std::vector<std::string> stop = {};  // texts that end a reply and are no part of it
};

struct TurnResult {
  std::string text;  // special tokens left out
  GenerateResult generation;
  int64_t reused_tokens = 0;  // found in the cache
};

class ChatSession {
 public:
  ChatSession(Engine& engine, Tokenizer tokenizer, const ChatSessionOptions& options);

  // Adds a message without answering it: a system prompt, or an older turn.
  void add(Message message);
  // Answers the conversation so far plus `user`. Text arrives piece by piece, never in the middle
  // of a character; the callback's false cancels. When the context has no room the error leaves
  // the conversation as it was before the call.
  using TextCallback = std::function<bool(std::string_view piece)>;
  TurnResult turn(const std::string& user, const GenerateOptions& options,
                  const TextCallback& on_text = {});

  void reset();  // forgets everything, the system prompt too
  const std::vector<Message>& messages() const { return messages_; }
  // Tokens of the conversation so far: in the cache, or about to be put there.
  int64_t context_tokens() const {
    return engine_.length() + int64_t(pending_.size()) + closing_tokens_;
  }

 private:
  std::vector<int32_t> next_prompt(int64_t& reused);
  void forget_cached_messages();
  void close_reply(const GenerateResult& result, int64_t fed_before, int64_t prompt_tokens);
  std::vector<int32_t> encode(const jinja::Rendering& r, size_t from) const;
  int64_t closing_tokens() const;

  Engine& engine_;
  Tokenizer tokenizer_;
  ChatSessionOptions options_;
  std::vector<Message> messages_;
  // The text that the cache and pending_ stand for, and how many messages it shows; empty: not
  // known.
  std::string said_;
  size_t said_messages_ = 0;
  int64_t closing_tokens_ = 0;  // what the template writes behind the reply, fed with the next turn
  std::string prompt_text_;     // of the turn that is being answered
  std::vector<int32_t> pending_;  // chosen, but not run: fed together with the next turn
};

}  // namespace nibble
