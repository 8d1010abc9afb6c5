// SPDX-License-Identifier: MIT
#include "generate/chat_session.h"

#include <algorithm>

#include "core/log.h"
#include "generate/stop_text.h"
#include "tokenizer/stream_decoder.h"

namespace nibble {

ChatSession::ChatSession(Engine& engine, Tokenizer tokenizer, const ChatSessionOptions& options)
    : engine_(engine), tokenizer_(std::move(tokenizer)), options_(options) {
  engine_.reset();
}

void ChatSession::add(Message message) { messages_.push_back(std::move(message)); }

// The next turn renders the whole conversation and keeps of the cache what still fits.
void ChatSession::forget_cached_messages() {
  said_.clear();
  pending_.clear();
  closing_tokens_ = 0;
}

void ChatSession::reset() {
  engine_.reset();
  messages_.clear();
  forget_cached_messages();
}

std::vector<int32_t> ChatSession::encode(const jinja::Rendering& r, size_t from) const {
  return encode_rendering(tokenizer_, r, options_.content, from, r.text.size());
}

// The tokens to feed for an answer to messages_, after cutting the cache to what they share.
std::vector<int32_t> ChatSession::next_prompt(int64_t& reused) {
  const jinja::Rendering r =
      options_.style.render(messages_, options_.tools, GenerationPrompt::yes, options_.thinking);
  prompt_text_ = r.text;
  const bool one_new_user_turn = !said_.empty() && messages_.size() == said_messages_ + 1 &&
                                 messages_.back().role == Role::user;
  if (options_.persistent && options_.history == HistoryMode::tokens && one_new_user_turn &&
      r.text.starts_with(said_)) {
    std::vector<int32_t> ids = pending_;
    const auto more = encode(r, said_.size());
    ids.insert(ids.end(), more.begin(), more.end());
    reused = engine_.length();
    return ids;
  }
  const std::vector<int32_t> all = encode(r, 0);
  const std::vector<int32_t>& cached = engine_.tokens();
  int64_t common = 0;
  if (options_.persistent) {
    const size_t limit = std::min(cached.size(), all.size() - 1);  // at least one token must run
    while (size_t(common) < limit && cached[size_t(common)] == all[size_t(common)]) ++common;
  }
  if (options_.persistent && options_.history == HistoryMode::both && common < engine_.length()) {
    log_warning(
        "the conversation rendered again differs from the cached tokens at position {}; {} tokens "
        "are "
        "computed again",
        common, engine_.length() - common);
  }
  engine_.truncate(common);
  reused = common;
  return {all.begin() + std::ptrdiff_t(common), all.end()};
}

TurnResult ChatSession::turn(const std::string& user, const GenerateOptions& options,
                             const TextCallback& on_text) {
  messages_.push_back({Role::user, user});
  TurnResult r;
  StreamDecoder decoder(tokenizer_, DecodeSpecial::skip);
  StopText stop(options_.stop);
  const auto show = [&](const std::string& piece) {
    r.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };
  const auto on_token = [&](int32_t id) {
    return show(stop.push(decoder.push(id))) && !stop.stopped();
  };
  const int64_t length_before = engine_.length();
  std::vector<int32_t> prompt;
  try {
    prompt = next_prompt(r.reused_tokens);
    r.generation = generate(engine_, prompt, options, on_token);
  } catch (...) {
    messages_.pop_back();
    // A refused prompt has changed nothing, unless the cache was cut: then it is rendered again.
    if (engine_.length() != length_before) forget_cached_messages();
    throw;
  }
  show(stop.push(decoder.flush()));
  show(stop.flush());
  messages_.push_back({Role::assistant, r.text});
  close_reply(r.generation, r.reused_tokens, int64_t(prompt.size()));
  if (stop.stopped()) {
    r.generation.reason = FinishReason::stop;
    forget_cached_messages();  // the cache holds tokens of the stop, which was not said
  }
  return r;
}

// Only counted: what is fed is what the whole conversation renders to, one turn later.
int64_t ChatSession::closing_tokens() const {
  try {
    const jinja::Rendering r =
        options_.style.render(messages_, options_.tools, GenerationPrompt::no, options_.thinking);
    return r.text.starts_with(said_) ? int64_t(encode(r, said_.size()).size()) : 0;
  } catch (const UsageError&) {
    return 0;  // a template that shows no conversation without a question at its end
  }
}

// The cache now holds the prompt and the reply. Tokens the loop chose but did not run come first in
// the next turn; what the template writes behind a reply follows from rendering it.
void ChatSession::close_reply(const GenerateResult& result, int64_t fed_before,
                              int64_t prompt_tokens) {
  const int64_t run = engine_.length() - fed_before - prompt_tokens;
  if (run < 0) return forget_cached_messages();  // the prompt itself ran out of time
  pending_.assign(result.ids.begin() + std::ptrdiff_t(run), result.ids.end());
  said_ = prompt_text_ + messages_.back().content;
  said_messages_ = messages_.size();
  closing_tokens_ = closing_tokens();
}

}  // namespace nibble
