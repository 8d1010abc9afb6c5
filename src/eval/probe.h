// SPDX-License-Identifier: MIT
// Probes: questions with rules their replies must keep. No files here; probe_file.h reads them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/generator.h"
#include "tokenizer/chat_template.h"

namespace nibble {

enum class ReplyLanguage { chinese, english };  // "zh", "en"
std::string_view language_name(ReplyLanguage language);
std::optional<ReplyLanguage> language_from_name(std::string_view name);
// By Chinese characters and Latin words, each counting one: the larger number wins, a tie is
// Chinese. Nothing for a text without either ("42").
std::optional<ReplyLanguage> language_of(std::string_view text);

struct ProbeRule {
  enum class Kind {
    contains,
    contains_any,
    contains_any_word,
    equals,
    not_contains,
    language,
    stops,
    no_repetition
  };
  Kind kind = Kind::contains;
  std::vector<std::string> texts = {};  // contains_any and ..._word: several; else one
  ReplyLanguage language = ReplyLanguage::chinese;
};
std::string_view rule_name(ProbeRule::Kind kind);
std::string describe(const ProbeRule& rule);  // contains "F#"

// A turn of the conversation that the model says itself, on its way to the last one.
struct OwnTurn {
  size_t at = 0;                 // messages[at] is the assistant's and empty
  std::vector<ProbeRule> rules;  // of that reply; may be none. They hold after the fine-tune
};
struct Probe {
  std::string id, group;
  ReplyLanguage language = ReplyLanguage::chinese;
  std::vector<Message> messages;
  std::vector<OwnTurn> own_turns = {};  // in order
  std::vector<ProbeRule> rules;
  // What holds before the fine-tune; none: `rules`.
  std::optional<std::vector<ProbeRule>> base_rules;
  int64_t max_tokens = 64;
};
struct ProbeSet {
  std::string name;
  std::vector<Probe> probes;
};
// The question as people see it: the last message, with the turns before it in front.
std::string prompt_text(std::span<const Message> messages);

enum class WhichRules { target, base };
const std::vector<ProbeRule>& rules_of(const Probe& probe, WhichRules which);

struct ProbeReply {
  std::string text;
  std::vector<int32_t> ids;  // without the end token
  FinishReason reason = FinishReason::stop;
};

// Why a reply breaks the rule, or nothing. Letters A to Z match in either case; white space at
// both ends does not count for equals. As a word means: no letter A to Z adjoins a letter at an end
// of the text, no digit a digit, so that "AI" is in "AI助手" and "AI2", not in "again".
std::optional<std::string> rule_problem(const ProbeRule& rule, const ProbeReply& reply);
// The first rule that is broken. An empty reply breaks every set of rules.
std::optional<std::string> reply_problem(const std::vector<ProbeRule>& rules,
                                         const ProbeReply& reply);

}  // namespace nibble
