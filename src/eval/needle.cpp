// SPDX-License-Identifier: MIT
#include "eval/needle.h"

#include "core/error.h"
#include "generate/generator.h"

namespace nibble {
namespace {

// One entry of a made-up harbour log. Numbers and names run in cycles of different lengths, so
// that the text is plain and long stretches are never alike.
std::string harbour_line(uint64_t n) {
  static constexpr std::string_view kWho[] = {"the keeper", "the pilot", "a fisherman",
                                              "the ferry crew", "the clerk"};
  static constexpr std::string_view kDid[] = {
      "counted the boats", "wrote down the wind", "mended a net",         "painted the north gate",
      "measured the tide", "waited for the mail", "repaired the lantern",
  };
  static constexpr std::string_view kWeather[] = {"Fog until noon.", "Clear and cold.",
                                                  "Light rain.", "A steady west wind."};
  return fmt::format("Day {}: {} {} {} times. {}\n", n + 1, kWho[n % 5], kDid[n % 7],
                     (n * 13) % 37 + 2, kWeather[(n / 3) % 4]);
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      lines.push_back(std::string(line) + "\n");
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

}  // namespace

EngineConversation::EngineConversation(Engine& engine, TurnEncoder encoder, CacheUse use)
    : engine_(engine), encoder_(std::move(encoder)), use_(use) {
  engine_.reset();
}

int64_t EngineConversation::count_tokens(std::string_view text) const {
  return int64_t(encoder_.encode(text).size());
}

std::string EngineConversation::ask(const std::string& text, int64_t max_tokens) {
  const std::vector<int32_t> turn = encoder_.user_turn(text);
  history_.insert(history_.end(), turn.begin(), turn.end());
  if (use_ == CacheUse::rebuild) engine_.reset();
  GenerateOptions o;
  o.max_tokens = max_tokens;
  o.stop_ids = encoder_.stop_ids;
  o.check_collapse = false;
  const GenerateResult r =
      generate(engine_, std::span(history_).subspan(size_t(engine_.length())), o);
  history_.insert(history_.end(), r.ids.begin(), r.ids.end());
  history_.insert(history_.end(), encoder_.end_of_reply.begin(), encoder_.end_of_reply.end());
  return encoder_.decode(r.ids);
}

Haystack::Haystack(std::string_view text) : lines_(split_lines(text)) {
  if (!text.empty() && lines_.empty()) throw_usage("the haystack has no text in it");
}

std::string Haystack::next_line() {
  const uint64_t n = at_++;
  return lines_.empty() ? harbour_line(n) : lines_[size_t(n % lines_.size())];
}

std::string Haystack::next(int64_t tokens, const Conversation& counter) {
  std::string text;
  // Lines are counted one by one: counting the growing text again would take quadratic time, and
  // tokens hardly ever reach across a line's end.
  for (int64_t count = 0; text.empty() || count < tokens;) {
    const std::string line = next_line();
    count += counter.count_tokens(line);
    text += line;
  }
  return text;
}

bool reply_has_secret(std::string_view reply, std::string_view secret) {
  return !secret.empty() && reply.find(secret) != std::string_view::npos;
}

NeedleResult run_needle(Conversation& c, Haystack& haystack, const NeedleOptions& o,
                        const std::function<void(int64_t)>& on_chunk) {
  if (o.secret.empty()) throw_usage("the secret is empty: any reply would contain it");
  if (o.chunk_tokens < 1) throw_usage("chunks of {} tokens, expected 1 or more", o.chunk_tokens);
  NeedleResult result;
  c.ask(fmt::format("Remember this key, I will ask you for it later: {}", o.secret), 1);
  while (c.length() < o.target_tokens) {
    const std::string filler =
        haystack.next(std::min(o.chunk_tokens, o.target_tokens - c.length()), c);
    if (reply_has_secret(filler, o.secret)) {
      throw_usage("the haystack holds the secret '{}' itself: choose another", o.secret);
    }
    c.ask(filler, 1);
    ++result.chunks;
    if (on_chunk) on_chunk(c.length());
  }
  result.tokens = c.length();
  result.reply = c.ask(
      "What was the key that I asked you to remember at the beginning? Answer with the key only.",
      o.max_tokens);
  result.found = reply_has_secret(result.reply, o.secret);
  return result;
}

}  // namespace nibble
