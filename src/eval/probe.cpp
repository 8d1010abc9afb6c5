// SPDX-License-Identifier: MIT
#include "eval/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "generate/health.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Letters of Latin script with their accents, without the two signs among them.
bool is_latin(char32_t c) {
  return is_ascii_letter(c) || (c >= 0xc0 && c <= 0x24f && c != 0xd7 && c != 0xf7);
}

bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x3ffff) ||
         (c >= 0x3100 && c <= 0x312f);
}

// ASCII only: bytes of other characters are never changed.
std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool has(const std::string& lowered, const std::string& part) {
  return lowered.find(lower(part)) != std::string::npos;
}

// Would `a` and `b`, side by side, belong to one word or number?
bool joined(char a, char b) {
  const auto letter = [](char c) { return is_ascii_letter(uint8_t(c)); };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return (letter(a) && letter(b)) || (digit(a) && digit(b));
}

bool has_word(const std::string& lowered, const std::string& part) {
  const std::string word = lower(part);
  for (size_t at = 0; (at = lowered.find(word, at)) != std::string::npos; ++at) {
    const size_t end = at + word.size();
    const bool starts = at == 0 || !joined(lowered[at - 1], word.front());
    if (starts && (end == lowered.size() || !joined(word.back(), lowered[end]))) return true;
  }
  return false;
}

}  // namespace

std::string_view language_name(ReplyLanguage l) {
  return l == ReplyLanguage::chinese ? "zh" : "en";
}

std::optional<ReplyLanguage> language_from_name(std::string_view name) {
  if (name == "zh") return ReplyLanguage::chinese;
  if (name == "en") return ReplyLanguage::english;
  return std::nullopt;
}

std::optional<ReplyLanguage> language_of(std::string_view text) {
  const std::string valid = repair_utf8(text);
  int64_t characters = 0, words = 0;
  bool in_word = false;
  for (size_t at = 0; at < valid.size();) {
    const CodePoint c = decode_valid(valid.data() + at);
    at += c.length;
    const bool latin = is_latin(c.value) || (in_word && c.value == '\'');
    words += latin && !in_word;
    in_word = latin;
    characters += is_chinese(c.value);
  }
  if (characters + words == 0) return std::nullopt;
  return characters >= words ? ReplyLanguage::chinese : ReplyLanguage::english;
}

std::string_view rule_name(ProbeRule::Kind kind) {
  using Kind = ProbeRule::Kind;
  switch (kind) {
    case Kind::contains: return "contains";
    case Kind::contains_any: return "contains_any";
    case Kind::contains_any_word: return "contains_any_word";
    case Kind::equals: return "equals";
    case Kind::not_contains: return "not_contains";
    case Kind::language: return "language";
    case Kind::stops: return "stops";
    case Kind::no_repetition: return "no_repetition";
  }
  return "?";
}

std::string describe(const ProbeRule& rule) {
  using Kind = ProbeRule::Kind;
  if (rule.kind == Kind::stops || rule.kind == Kind::no_repetition) {
    return std::string(rule_name(rule.kind));
  }
  if (rule.kind == Kind::language) {
    return fmt::format("language {}", language_name(rule.language));
  }
  std::string texts;
  for (const std::string& t : rule.texts) {
    texts += fmt::format("{}\"{}\"", texts.empty() ? "" : ", ", t);
  }
  return fmt::format("{} {}", rule_name(rule.kind), texts);
}

std::string prompt_text(std::span<const Message> messages) {
  std::string text;
  for (const Message& m : messages) {
    if (!text.empty()) text += " / ";
    if (m.role != Role::user) text += fmt::format("[{}] ", role_name(m.role));
    text += m.content;
  }
  return text;
}

const std::vector<ProbeRule>& rules_of(const Probe& probe, WhichRules which) {
  return which == WhichRules::base && probe.base_rules ? *probe.base_rules : probe.rules;
}

std::optional<std::string> rule_problem(const ProbeRule& rule, const ProbeReply& reply) {
  using Kind = ProbeRule::Kind;
  const auto broken = [&](const std::string& found) {
    return fmt::format("{}{}{}", describe(rule), found.empty() ? "" : ": ", found);
  };
  switch (rule.kind) {
    case Kind::contains:
    case Kind::contains_any:
    case Kind::contains_any_word: {
      const std::string text = lower(reply.text);
      const auto found = rule.kind == Kind::contains_any_word ? has_word : has;
      if (std::ranges::any_of(rule.texts, [&](const auto& t) { return found(text, t); })) return {};
      return broken("");
    }
    case Kind::not_contains:
      if (!has(lower(reply.text), rule.texts.front())) return {};
      return broken("");
    case Kind::equals:
      if (lower(trimmed(reply.text)) == lower(trimmed(rule.texts.front()))) return {};
      return broken("");
    case Kind::language: {
      const auto found = language_of(reply.text);
      if (!found || *found == rule.language) return {};
      return broken(fmt::format("the reply is {}", language_name(*found)));
    }
    case Kind::stops:
      if (reply.reason == FinishReason::stop) return {};
      return broken(
          fmt::format("{} after {} tokens", finish_reason_name(reply.reason), reply.ids.size()));
    case Kind::no_repetition:
      if (const auto why = repetition_reason(reply.ids, reply.text)) return broken(*why);
      return {};
  }
  return {};
}

std::optional<std::string> reply_problem(const std::vector<ProbeRule>& rules,
                                         const ProbeReply& reply) {
  if (is_unhealthy(reply.reason)) {
    return fmt::format("the reply ended by {}", finish_reason_name(reply.reason));
  }
  if (trimmed(reply.text).empty()) return "the reply is empty";
  for (const ProbeRule& rule : rules) {
    if (auto problem = rule_problem(rule, reply)) return problem;
  }
  return std::nullopt;
}

}  // namespace nibble
