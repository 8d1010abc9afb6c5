// SPDX-License-Identifier: MIT
#include "serve/api/token_json.h"

#include <algorithm>

#include "core/json.h"
#include "serve/api/api_error.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
double shown_logprob(double x) { return std::max(x, -9999.0); }

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (uint8_t(c) & 0xc0) != 0x80; });
}

Json one_chance(const Tokenizer& tokenizer, const TokenChance& chance) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(chance.id)) bytes.push_back(int(uint8_t(c)));
  return {{"token", shown_token(tokenizer, chance.id)},
          {"logprob", shown_logprob(chance.logprob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

std::string shown_token(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  const std::string text = tokenizer.decode(std::span(&id, 1));
  if (text == bytes) return text;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", uint8_t(c));
  return out;
}

Json chat_logprob(const Tokenizer& tokenizer, const TokenFacts& facts) {
  Json j = one_chance(tokenizer, facts.token);
  j["top_logprobs"] = Json::array();
  for (const TokenChance& c : facts.top) j["top_logprobs"].push_back(one_chance(tokenizer, c));
  return j;
}

void CompletionLogprobs::add_token(int32_t id) {
  rows_.push_back({shown_token(tokenizer_, id), offset_, {}});
  offset_ += characters(tokenizer_.token_bytes(id));
}

void CompletionLogprobs::skip_text(const std::string& text) { offset_ += characters(text); }

void CompletionLogprobs::add_first(int32_t id) { add_token(id); }

void CompletionLogprobs::add(const TokenFacts& facts) {
  add_token(facts.token.id);
  rows_.back().facts = facts;
}

Json CompletionLogprobs::take() {
  Json j = {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  for (const Row& row : rows_) {
    j["tokens"].push_back(row.token);
    j["text_offset"].push_back(row.offset);
    j["token_logprobs"].push_back(row.facts ? Json(shown_logprob(row.facts->token.logprob))
                                            : Json());
    if (!row.facts || top_ == 0) {
      j["top_logprobs"].push_back(Json());
      continue;
    }
    Json top = Json::object();
    for (const TokenChance& c : row.facts->top) {
      top[shown_token(tokenizer_, c.id)] = shown_logprob(c.logprob);
    }
    // The token itself is always among them.
    top[row.token] = shown_logprob(row.facts->token.logprob);
    j["top_logprobs"].push_back(std::move(top));
  }
  rows_.clear();
  return j;
}

std::string json_text(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sse_event(const Json& j) { return "data: " + json_text(j) + "\n\n"; }

bool next_sse(bool& done, std::string& out, const std::function<bool()>& more,
              const std::function<void()>& last) {
  if (done) return false;
  try {
    if (more()) return true;
    last();
    out += kSseDone;
  } catch (...) {
    out += "data: " + current_api_error().body() + "\n\n" + kSseDone;
  }
  done = true;
  return false;
}

}  // namespace nibble
