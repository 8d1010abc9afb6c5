// SPDX-License-Identifier: MIT
// The grammar every data set of ours is made from: intents (what is asked) with phrasings, values
// and a reply. Some phrasings and values are held out: training never sees them, probes are made
// of nothing else. docs/data.md has the rules; the texts are in grammar_*.cpp.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/draw.h"
#include "data/phrases.h"

namespace nibble {

enum class Language { zh, en };
std::string_view language_name(Language language);
enum class ProbeGroup { none, identity, retention, disambiguation };
std::string_view group_name(ProbeGroup group);
enum class Split { train, held_out };

struct Table {
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

enum class Wrap { question, command, statement };  // which polite words may stand around it
struct Phrasing {
  std::string text;  // "[a|b]" is a choice, "{name}" a value, " // " parts turns
  Wrap wrap = Wrap::question;
  Split split = Split::train;
};

struct Intent {
  std::string id;  // "capital"
  Language language = Language::zh;
  ProbeGroup group = ProbeGroup::none;
  std::string source;  // of its values: a table, a generator, or "-"
  uint32_t weight = 1;
  int probes = 0;
  bool check_language = false;  // the reply is plain text of the language asked in
  bool alone = false;           // says something about the asker: not joined with other turns
  std::vector<Phrasing> phrasings;
  std::string reply;
  std::vector<std::string> checks;  // what a reply must contain; "a|b": one of them
  std::string equals;               // or must be
};

struct Grammar {
  std::map<std::string, Table, std::less<>> tables;
  std::vector<Intent> intents;

  // Values for one use of the intent. Generated ones are of the split asked for; those of tables
  // (facts) belong to both.
  Row values(const Intent& intent, Split split, Draw& draw) const;
  const Intent& find(std::string_view id, Language language) const;  // throws InternalError
};
const Grammar& grammar();  // the built-in one, parsed once

// Adds tables and intents; throws InternalError naming the line.
void parse_grammar(Grammar& grammar, std::string_view text);

// Polite words and punctuation around a question. Held-out wrapping differs from that of training.
std::string wrap(std::string text, Wrap how, Language language, Split split, Draw& draw);

// Values that are made, not listed: null when there is no such generator.
using Generator = Row (*)(const Grammar&, Draw&);
struct NamedGenerator {
  Generator make;
  // What decides whether these values are held out; "": they are a fact, in both splits.
  std::string (*key)(const Row&);
};
const NamedGenerator* find_generator(std::string_view name);
bool is_held_out(std::string_view key);  // one key in ten

// The user's turns, without the polite words that may stand around the last one.
struct Asked {
  std::vector<std::string> turns;
  Wrap wrap;
};
Asked ask(const Intent& intent, Split split, const Row& row, Draw& draw);
// The polite words that can stand around a question.
struct Wrapping {
  std::vector<std::string_view> before, after;
};
const Wrapping& wrapping(Wrap how, Language language, Split split);

// One dialogue: user and assistant in turn, the reply last.
struct Dialogue {
  std::vector<std::string> turns;
};
Dialogue make_dialogue(const Grammar& grammar, const Intent& intent, Split split, const Row& row,
                       Draw& draw);
// Any intent for which `wanted` holds, by weight; weights above `most` count as that.
class IntentChooser {
 public:
  template <class Wanted>
  IntentChooser(const Grammar& grammar, Wanted&& wanted, uint32_t most = UINT32_MAX) {
    for (const Intent& i : grammar.intents) {
      if (wanted(i)) add(i, most);
    }
  }
  const Intent& choose(Draw& draw) const;
  bool empty() const { return intents_.empty(); }

 private:
  void add(const Intent& intent, uint32_t most);
  std::vector<const Intent*> intents_;
  std::vector<uint32_t> ends_;  // running sum of weights
};

// The texts of grammar_*.cpp.
extern const std::string_view kGrammarTables, kGrammarWho, kGrammarFacts, kGrammarTasks,
    kGrammarTalk;

}  // namespace nibble
