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
  // Where the context has no room left for a turn and a reply: the oldest turns are forgotten until
  // a quarter of it is free. Messages of the system before them stay.
  bool slide = false;
  std::vector<std::string> stop = {};  // texts that end a reply and are no part of it
};

struct TurnResult {
  std::string text;  // special tokens left out
  GenerateResult generation;
  int64_t reused_tokens = 0;  // found in the cache
  size_t dropped = 0;         // messages forgotten for want of room (slide)
};

// What a session knows beside its messages: with the cache of its engine, enough to go on in
// another process without running anything again.
struct ChatPlace {
  size_t messages = 0;  // how many there were
  // The text that the cache and `pending` stand for, and how many messages it shows; empty: not
  // known.
  std::string said;
  size_t said_messages = 0;
  int64_t closing_tokens = 0;  // what the template writes behind the reply, fed with the next turn
  std::vector<int32_t> pending;  // chosen, but not run: fed together with the next turn
  int64_t cached = 0;            // tokens of the cache that belong to it
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

  // Takes the last user message back, and what came after it. False: there is none.
  bool undo();
  // In place of the system message at the beginning; empty: none. The turns stay.
  void set_system(const std::string& text);
  const ChatPlace& place() const { return here_; }
  const std::vector<ChatPlace>& places_before() const { return before_; }
  // Instead of everything there was; the engine holds the tokens of `place` already, and so those
  // of the places before it, which are what undo() goes back to.
  void restore(std::vector<Message> messages, ChatPlace place, std::vector<ChatPlace> before = {});

  void reset();  // forgets everything, the system prompt too
  const std::vector<Message>& messages() const { return messages_; }
  // Tokens of the conversation so far: in the cache, or about to be put there.
  int64_t context_tokens() const {
    return here_.cached + int64_t(here_.pending.size()) + here_.closing_tokens;
  }

 private:
  std::vector<int32_t> next_prompt(int64_t& reused);
  std::vector<int32_t> fitting_prompt(int64_t max_tokens, TurnResult& result);
  bool drop_oldest_turn();
  bool fits_alone();
  jinja::Rendering render(GenerationPrompt prompt) const;
  void forget_cached_messages();
  void forget_undone_tokens();
  void close_reply(const GenerateResult& result, int64_t fed_before, int64_t prompt_tokens);
  std::vector<int32_t> encode(const jinja::Rendering& r, size_t from) const;
  int64_t closing_tokens() const;

  Engine& engine_;
  Tokenizer tokenizer_;
  ChatSessionOptions options_;
  std::vector<Message> messages_;
  ChatPlace here_;
  std::vector<ChatPlace> before_;  // each turn, for undo()
  std::string prompt_text_;        // of the turn that is being answered
};

}  // namespace nibble
