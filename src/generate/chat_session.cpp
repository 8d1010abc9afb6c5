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
  here_ = {};
  here_.cached = engine_.length();
}

void ChatSession::reset() {
  engine_.reset();
  messages_.clear();
  before_.clear();
  forget_cached_messages();
}

void ChatSession::restore(std::vector<Message> messages, ChatPlace place,
                          std::vector<ChatPlace> before) {
  messages_ = std::move(messages);
  before_ = std::move(before);
  here_ = std::move(place);
}

bool ChatSession::undo() {
  size_t last = messages_.size();
  while (last > 0 && messages_[last - 1].role != Role::user) --last;
  if (last == 0) return false;
  messages_.resize(last - 1);
  if (!before_.empty() && before_.back().messages == last - 1 && !before_.back().said.empty()) {
    here_ = std::move(before_.back());
  } else {
    forget_cached_messages();
    if (last <= 2) here_.cached = 0;
  }
  if (!before_.empty()) before_.pop_back();
  forget_undone_tokens();
  return true;
}

// What follows is to be what would have followed without the turn that was taken back, to the bit.
// Where a token has the same keys and values whatever ran beside it, the cache may keep what lies
// behind: a question that is asked once more finds its tokens there.
void ChatSession::forget_undone_tokens() {
  if (engine_.backend().traits().batch_invariant(engine_.options().compute)) return;
  engine_.truncate(here_.said.empty() ? 0 : here_.cached);
  if (here_.said.empty()) forget_cached_messages();
}

void ChatSession::set_system(const std::string& text) {
  const bool has = !messages_.empty() && messages_[0].role == Role::system;
  if (has) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {Role::system, text});
  before_.clear();
  forget_cached_messages();
}

// The oldest user message and what follows it up to the next one; the newest stays.
bool ChatSession::drop_oldest_turn() {
  const auto is_user = [](const Message& m) { return m.role == Role::user; };
  const auto first =
      std::ranges::find_if(messages_, [](const Message& m) { return m.role != Role::system; });
  if (first == messages_.end()) return false;
  const auto next = std::find_if(first + 1, messages_.end(), is_user);
  if (next == messages_.end()) return false;
  messages_.erase(first, next);
  return true;
}

// Whether the newest message would have room if nothing were left but it and the system's.
bool ChatSession::fits_alone() {
  const std::vector<Message> all = messages_;
  while (drop_oldest_turn()) continue;
  const size_t tokens = encode(render(GenerationPrompt::yes), 0).size();
  messages_ = all;
  return int64_t(tokens) <= engine_.options().context;
}

// The tokens to feed; with `slide`, after forgetting turns where they would leave no room for a
// reply. A quarter of the context is made free at once: each time everything is computed again.
std::vector<int32_t> ChatSession::fitting_prompt(int64_t max_tokens, TurnResult& result) {
  std::vector<int32_t> ids = next_prompt(result.reused_tokens);
  const int64_t context = engine_.options().context, quarter = context / 4;
  const auto total = [&] { return result.reused_tokens + int64_t(ids.size()); };
  if (!options_.slide || total() + std::min(max_tokens, quarter) <= context || !fits_alone()) {
    return ids;
  }
  const size_t all = messages_.size();
  while (total() > context - quarter && drop_oldest_turn()) {
    here_ = {};
    ids = next_prompt(result.reused_tokens);
  }
  result.dropped = all - messages_.size();
  if (result.dropped > 0) {
    before_.assign(1, {});
    before_.back().messages = messages_.size() - 1;
  }
  return ids;
}

jinja::Rendering ChatSession::render(GenerationPrompt prompt) const {
  return options_.style.render(messages_, options_.tools, prompt, options_.thinking);
}

std::vector<int32_t> ChatSession::encode(const jinja::Rendering& r, size_t from) const {
  return encode_rendering(tokenizer_, r, options_.content, from, r.text.size());
}

// The tokens to feed for an answer to messages_, after cutting the cache to what they share.
std::vector<int32_t> ChatSession::next_prompt(int64_t& reused) {
  const jinja::Rendering r = render(GenerationPrompt::yes);
  prompt_text_ = r.text;
  const std::vector<int32_t>& cached = engine_.tokens();
  const bool one_new_user_turn = !here_.said.empty() &&
                                 messages_.size() == here_.said_messages + 1 &&
                                 messages_.back().role == Role::user;
  if (options_.persistent && options_.history == HistoryMode::tokens && one_new_user_turn &&
      r.text.starts_with(here_.said)) {
    std::vector<int32_t> ids = here_.pending;
    const auto more = encode(r, here_.said.size());
    ids.insert(ids.end(), more.begin(), more.end());
    // Behind what was taken back the cache may hold the same question.
    size_t same = 0;
    while (size_t(here_.cached) + same < cached.size() && same + 1 < ids.size() &&
           cached[size_t(here_.cached) + same] == ids[same]) {
      ++same;
    }
    reused = here_.cached + int64_t(same);
    engine_.truncate(reused);
    return {ids.begin() + std::ptrdiff_t(same), ids.end()};
  }
  const std::vector<int32_t> all = encode(r, 0);
  int64_t common = 0;
  if (options_.persistent) {
    const size_t limit = std::min(cached.size(), all.size() - 1);  // at least one token must run
    while (size_t(common) < limit && cached[size_t(common)] == all[size_t(common)]) ++common;
  }
  if (options_.persistent && options_.history == HistoryMode::both && !here_.said.empty() &&
      common < here_.cached) {
    log_warning(
        "the conversation rendered again differs from the cached tokens at position {}; {} tokens "
        "are "
        "computed again",
        common, here_.cached - common);
  }
  engine_.truncate(common);
  for (ChatPlace& place : before_) {
    if (place.cached > common) place.said.clear();  // its tokens are gone
  }
  reused = common;
  return {all.begin() + std::ptrdiff_t(common), all.end()};
}

TurnResult ChatSession::turn(const std::string& user, const GenerateOptions& options,
                             const TextCallback& on_text) {
  before_.push_back(here_);
  before_.back().messages = messages_.size();
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
  std::vector<int32_t> prompt;
  try {
    prompt = fitting_prompt(options.max_tokens, r);
    r.generation = generate(engine_, prompt, options, on_token);
  } catch (...) {
    messages_.pop_back();
    if (!before_.empty()) before_.pop_back();
    // A refused prompt has changed nothing, unless the cache was cut: then it is rendered again.
    if (engine_.length() < here_.cached || here_.said.empty()) forget_cached_messages();
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
    const jinja::Rendering r = render(GenerationPrompt::no);
    return r.text.starts_with(here_.said) ? int64_t(encode(r, here_.said.size()).size()) : 0;
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
  here_.pending.assign(result.ids.begin() + std::ptrdiff_t(run), result.ids.end());
  here_.said = prompt_text_ + messages_.back().content;
  here_.messages = here_.said_messages = messages_.size();
  here_.cached = engine_.length();
  here_.closing_tokens = closing_tokens();
}

}  // namespace nibble
