// SPDX-License-Identifier: MIT
// Parsing the grammar and making dialogues of it.
#include "mini/grammar.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace nibble {
namespace {

std::vector<std::string> cut(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t next = text.find(separator, at);
    out.emplace_back(text.substr(at, next == text.npos ? next : next - at));
    if (next == text.npos) return out;
    at = next + separator.size();
  }
}

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for (const std::string& w : cut(line, " ")) {
    if (!w.empty()) out.push_back(w);
  }
  return out;
}

Intent parse_intent(std::string_view line) {
  const auto w = words(line);
  if (w.size() < 6) throw_internal("grammar: '{}' needs id language group source weight", line);
  Intent i;
  i.id = w[1];
  i.language = w[2] == "zh" ? Language::zh : Language::en;
  for (const ProbeGroup g :
       {ProbeGroup::identity, ProbeGroup::retention, ProbeGroup::disambiguation}) {
    if (w[3] == group_name(g)) i.group = g;
  }
  i.source = w[4];
  i.weight = uint32_t(std::stoul(w[5]));
  for (size_t k = 6; k < w.size(); ++k) {
    if (w[k].starts_with("p=")) {
      i.probes = std::stoi(w[k].substr(2));
    } else if (w[k] == "lang") {
      i.check_language = true;
    } else if (w[k] == "alone") {
      i.alone = true;
    } else {
      throw_internal("grammar: unknown word '{}' in '{}'", w[k], line);
    }
  }
  return i;
}

void add_row(Table& table, std::string_view line) {
  const auto cells = cut(line, "|");
  if (cells.size() != table.columns.size()) {
    throw_internal("grammar: {} cells in '{}', expected {}", cells.size(), line,
                   table.columns.size());
  }
  Row row;
  for (size_t c = 0; c < cells.size(); ++c) row[table.columns[c]] = cells[c];
  table.rows.push_back(std::move(row));
}

void capitalise(std::string& text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = char(text[0] - 'a' + 'A');
}

}  // namespace

std::string_view language_name(Language language) { return language == Language::zh ? "zh" : "en"; }

std::string_view group_name(ProbeGroup group) {
  switch (group) {
    case ProbeGroup::identity: return "identity";
    case ProbeGroup::retention: return "retention";
    case ProbeGroup::disambiguation: return "disambiguation";
    case ProbeGroup::none: break;
  }
  return "none";
}

void parse_grammar(Grammar& grammar, std::string_view text) {
  Table* table = nullptr;
  for (const std::string& line : cut(text, "\n")) {
    if (line.empty()) continue;
    const char mark = line[0];
    const std::string rest = line.size() > 2 ? line.substr(2) : "";
    if (mark == '#') {  // "# name column column"
      auto w = words(rest);
      table = &grammar.tables[w.front()];
      table->columns.assign(w.begin() + 1, w.end());
    } else if (mark == '=') {
      table = nullptr;
      grammar.intents.push_back(parse_intent(line));
    } else if (table) {
      add_row(*table, line);
    } else if (grammar.intents.empty() || line.size() < 3 || line[1] != ' ') {
      throw_internal("grammar: '{}' belongs to nothing", line);
    } else {
      Intent& i = grammar.intents.back();
      switch (mark) {
        case '+': i.phrasings.push_back({rest, Wrap::question, Split::train}); break;
        case '-': i.phrasings.push_back({rest, Wrap::question, Split::held_out}); break;
        case '*': i.phrasings.push_back({rest, Wrap::command, Split::train}); break;
        case '~': i.phrasings.push_back({rest, Wrap::command, Split::held_out}); break;
        case '.': i.phrasings.push_back({rest, Wrap::statement, Split::train}); break;
        case ',': i.phrasings.push_back({rest, Wrap::statement, Split::held_out}); break;
        case '>': i.reply = rest; break;
        case '!': i.checks.push_back(rest); break;
        case '@': i.equals = rest; break;
        default: throw_internal("grammar: unknown mark in '{}'", line);
      }
    }
  }
}

const Grammar& grammar() {
  static const Grammar all = [] {
    Grammar g;
    for (const std::string_view text :
         {kGrammarTables, kGrammarWho, kGrammarFacts, kGrammarTasks, kGrammarTalk}) {
      parse_grammar(g, text);
    }
    return g;
  }();
  return all;
}

const Intent& Grammar::find(std::string_view id, Language language) const {
  for (const Intent& i : intents) {
    if (i.id == id && i.language == language) return i;
  }
  throw_internal("grammar: no intent '{}'", id);
}

bool is_held_out(std::string_view key) {
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : key) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  h ^= h >> 32;
  return (h * 0xd6e8feb86659fd93u >> 40) % 10 == 0;
}

Row Grammar::values(const Intent& intent, Split split, Draw& draw) const {
  if (intent.source == "-") return {};
  if (const NamedGenerator* g = find_generator(intent.source)) {
    for (int attempt = 0; attempt < 10000; ++attempt) {
      Row row = g->make(*this, draw);
      const std::string key = g->key(row);
      if (key.empty() || is_held_out(key) == (split == Split::held_out)) return row;
    }
    throw_internal("grammar: '{}' makes no such values", intent.source);
  }
  const auto table = tables.find(intent.source);
  if (table == tables.end()) throw_internal("grammar: no source '{}'", intent.source);
  return draw.pick(table->second.rows);
}

const Wrapping& wrapping(Wrap how, Language language, Split split) {
  // [language][how][split]
  static const Wrapping kAll[2][3][2] = {
      {{{{"請問", "我想問，", "想請教一下，", "你好，", "嗨，", "告訴我，", "我有個問題，",
          "不好意思，", "我想知道，", "對了，", "那麼，"},
         {"？", "？", "？", "?", "?", "", ""}},
        {{"不好意思，請問", "你好，我想問，", "嗨，請問", "對了，我想知道，", "你好，請問"},
         {"？", "?", ""}}},
       {{{"請", "麻煩你", "可以請你", "你好，請", "拜託，", "現在", "嗨，"},
         {"", "", "。", "，謝謝", "！", "吧"}},
        {{"嗨，麻煩你", "不好意思，請你", "你好，可以請你", "拜託你"}, {"", "。", "，謝謝。"}}},
       {{{"嗨，", "你好，", "哈囉，", "對了，"}, {"。", "。", "！", ""}},
        {{"嗨，對了，", "你好，對了，"}, {"。", ""}}}},
      {{{{"hi, ", "hello, ", "hey, ", "excuse me, ", "oh, excuse me, ", "quick question: ",
          "I have a question: ", "tell me, ", "please tell me, ", "sorry, ", "so, "},
         {"?", "?", "?", "?", "", "."}},
        {{"hello, excuse me, ", "hey, quick question: ", "sorry, please tell me, ",
          "hi, I have a question: ", "so tell me, "},
         {"?", "?", ""}}},
       {{{"please ", "can you ", "could you ", "hi, please ", "now ", "hey, "},
         {".", ".", "", "!", ", please."}},
        {{"hello, please ", "hey, could you ", "now please ", "sorry, can you "}, {".", ""}}},
       {{{"hi, ", "hello, ", "hey, ", "well, "}, {".", ".", "!", ""}},
        {{"hey, hello, ", "well, hello, "}, {".", ""}}}}};
  return kAll[int(language)][int(how)][int(split)];
}

// Half of all prompts have nothing in front.
std::string wrap(std::string text, Wrap how, Language language, Split split, Draw& draw) {
  const Wrapping& w = wrapping(how, language, split);
  // What is punctuated already stays so.
  constexpr std::array<std::string_view, 4> kEnds = {"？", "。", "?", "."};
  const bool ended = std::any_of(kEnds.begin(), kEnds.end(),
                                 [&](std::string_view e) { return text.ends_with(e); });
  const bool bare = draw.percent(50);
  const std::string_view before = draw.pick(w.before), after = draw.pick(w.after);
  std::string out = bare ? text : std::string(before) + text;
  if (!ended) out += after;
  if (language == Language::en && !draw.percent(15)) capitalise(out);
  return out;
}

Asked ask(const Intent& intent, Split split, const Row& row, Draw& draw) {
  std::vector<const Phrasing*> fitting;
  for (const Phrasing& p : intent.phrasings) {
    if (p.split == split) fitting.push_back(&p);
  }
  if (fitting.empty()) throw_internal("grammar: '{}' has no such phrasing", intent.id);
  const Phrasing& p = *draw.pick(fitting);
  return {cut(expand(p.text, row, draw), " // "), p.wrap};
}

Dialogue make_dialogue(const Grammar&, const Intent& intent, Split split, const Row& row,
                       Draw& draw) {
  Asked asked = ask(intent, split, row, draw);
  Dialogue d{std::move(asked.turns)};
  d.turns.back() = wrap(d.turns.back(), asked.wrap, intent.language, split, draw);
  d.turns.push_back(expand(intent.reply, row, draw));
  return d;
}

void IntentChooser::add(const Intent& intent, uint32_t most) {
  intents_.push_back(&intent);
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + std::min(intent.weight, most));
}

const Intent& IntentChooser::choose(Draw& draw) const {
  const uint32_t at = draw.below(ends_.back());
  return *intents_[size_t(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin())];
}

}  // namespace nibble
