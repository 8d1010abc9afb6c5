// SPDX-License-Identifier: MIT
#include "mini/training_says.h"

#include <algorithm>
#include <set>

#include "data/records.h"

namespace nibble {
namespace {

// A letter of a script without spaces that no text of ours has: any value may stand there, be it
// English or Chinese, so spaces beside it are none.
constexpr std::string_view kAnyValue = "\u3105";

// Every row an intent's values can be that does not depend on what is held out.
std::vector<Row> listed_rows(const Grammar& grammar, const Intent& intent) {
  if (intent.source == "-") return {Row()};
  const NamedGenerator* generator = find_generator(intent.source);
  if (!generator) return grammar.tables.at(intent.source).rows;
  // Facts come from lists of some hundred rows: so many draws meet almost all of them.
  constexpr int kDraws = 4000;
  std::set<Row> rows;
  Draw draw(0, 0, 0);
  for (int i = 0; i < kDraws; ++i) {
    Row row = generator->make(grammar, draw);
    if (!generator->key(row).empty()) return {};
    rows.insert(std::move(row));
  }
  return {rows.begin(), rows.end()};
}

// A row with the names the intent's phrasings use.
Row any_row(const Grammar& grammar, const Intent& intent) {
  Draw draw(0, 0, 0);
  return grammar.values(intent, Split::train, draw);
}

// The text, and what remains of it without the words training puts around a last turn.
std::vector<std::string> unwrapped(const std::string& key, Language language) {
  const size_t line = key.rfind('\n');
  const size_t begin = line == key.npos ? 0 : line + 1;
  const std::string_view before_last = std::string_view(key).substr(0, begin);
  const std::string_view last = std::string_view(key).substr(begin);
  const auto trim = [](std::string_view t) {
    while (t.starts_with(' ')) t.remove_prefix(1);
    while (t.ends_with(' ')) t.remove_suffix(1);
    return t;
  };
  std::vector<std::string> out = {key};
  for (const Wrap how : {Wrap::question, Wrap::command, Wrap::statement}) {
    const Wrapping& w = wrapping(how, language, Split::train);
    std::set<std::string> before = {""}, after = {""};
    for (const std::string_view b : w.before) before.insert(normalised(b));
    for (const std::string_view a : w.after) after.insert(normalised(a));
    for (const std::string& b : before) {
      if (!last.starts_with(b)) continue;
      for (const std::string& a : after) {
        const std::string_view rest = last.substr(b.size());
        if (!rest.ends_with(a)) continue;
        out.push_back(std::string(before_last) +
                      std::string(trim(rest.substr(0, rest.size() - a.size()))));
      }
    }
  }
  return out;
}

bool any_of(const std::unordered_set<std::string>& keys, const std::string& key,
            Language language) {
  const auto texts = unwrapped(key, language);
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& t) { return keys.contains(t); });
}

}  // namespace

std::vector<std::string> user_turns(const std::vector<std::string>& turns) {
  std::vector<std::string> out;
  for (size_t i = 0; i < turns.size(); i += 2) out.push_back(turns[i]);
  return out;
}

Row without_values(const Row& row) {
  Row out;
  for (const auto& [name, value] : row) out[name] = kAnyValue;
  return out;
}

// Conversations are joined of several dialogues, so any stretch of turns may stand by itself.
void TrainingSays::add(const Intent& intent, const Row& row, Keys& keys) const {
  for (Walk walk; walk.next();) {
    Draw draw(walk);
    const auto turns = user_turns(ask(intent, Split::train, row, draw).turns);
    for (size_t i = 0; i < turns.size(); ++i) {
      for (size_t n = 1; i + n <= turns.size(); ++n) {
        keys.insert(normalised(joined(std::span(turns).subspan(i, n))));
      }
    }
  }
}

TrainingSays::TrainingSays(const Grammar& grammar) : grammar_(grammar) {
  for (const Intent& intent : grammar.intents) {
    add(intent, without_values(any_row(grammar, intent)), patterns_);
    for (const Row& row : listed_rows(grammar, intent)) add(intent, row, prompts_);
  }
}

bool TrainingSays::has_pattern(const Question& q) const {
  return any_of(patterns_, normalised(joined(q.pattern)), q.intent->language);
}

bool TrainingSays::has_prompt(const Question& q) const {
  Keys own;
  for (const Intent& intent : grammar_.intents) {
    if (intent.source == q.intent->source) add(intent, q.row, own);
  }
  const std::string key = normalised(joined(q.turns));
  return any_of(prompts_, key, q.intent->language) || any_of(own, key, q.intent->language);
}

}  // namespace nibble
