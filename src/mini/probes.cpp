// SPDX-License-Identifier: MIT
#include "mini/probes.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "data/records.h"
#include "mini/training_says.h"

namespace nibble {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kProbeStream = 100;

// All user turns. Draws depend on it: another rule would make another file of the same seed.
std::string asked(const Dialogue& d) {
  return normalised(joined(user_turns(d.turns)), KeyRule::drawn);
}

// All that training phrasings of the intent can make of these values.
std::set<std::string> training_says(const Intent& intent, const Row& row) {
  std::set<std::string> all;
  for (Walk walk; walk.next();) {
    Draw draw(walk);
    all.insert(asked(make_dialogue(grammar(), intent, Split::train, row, draw)));
  }
  return all;
}

ordered_json contains_rule(const std::string& check) {
  if (check.find('|') == check.npos) return {{"contains", check}};
  ordered_json any = ordered_json::array();
  for (size_t at = 0;;) {
    const size_t next = check.find('|', at);
    any.push_back(check.substr(at, next == check.npos ? next : next - at));
    if (next == check.npos) return {{"contains_any", any}};
    at = next + 1;
  }
}

ordered_json content_rules(const Intent& intent, const Row& row, Draw& draw) {
  ordered_json rules = ordered_json::array();
  if (!intent.equals.empty()) rules.push_back({{"equals", expand(intent.equals, row, draw)}});
  for (const std::string& c : intent.checks) {
    rules.push_back(contains_rule(expand(c, row, draw)));
  }
  return rules;
}

ordered_json make_probe(const Intent& intent, const Row& row, const Dialogue& d,
                        const std::string& id, const ProbeOptions& options, Draw& draw) {
  const bool zh = intent.language == Language::zh;
  ordered_json messages = ordered_json::array();
  for (size_t i = 0; i + 1 < d.turns.size(); ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", d.turns[i]}});
  }
  ordered_json probe = {{"id", id},
                        {"group", group_name(intent.group)},
                        {"language", language_name(intent.language)},
                        {"messages", messages}};
  ordered_json rules = content_rules(intent, row, draw);
  const ordered_json language = {{"language", language_name(intent.language)}};
  const std::string& mine = zh ? options.identity.zh : options.identity.en;
  if (intent.group == ProbeGroup::identity) {
    probe["rules"] = ordered_json::array({{{"contains", mine}}, language});
    rules.push_back({{"not_contains", mine}});
    probe["base_rules"] = rules;
  } else {
    if (intent.check_language) rules.push_back(language);
    rules.push_back({{"not_contains", options.identity.zh}});
    rules.push_back({{"not_contains", options.identity.en}});
    probe["rules"] = rules;
  }
  return probe;
}

}  // namespace

std::string make_probes(const ProbeOptions& options) {
  check_answer(options.identity.zh, "--identity-zh", AnswerFile::other);
  check_answer(options.identity.en, "--identity-en", AnswerFile::other);
  const Grammar& g = grammar();
  const TrainingSays training(g);
  ordered_json list = ordered_json::array();
  std::set<std::string> seen;
  for (size_t n = 0; n < g.intents.size(); ++n) {
    const Intent& intent = g.intents[n];
    Draw draw(options.seed, kProbeStream, n);
    std::set<std::string> trained;
    int made = 0;
    for (int attempt = 0; made < intent.probes; ++attempt) {
      if (attempt == 200 * intent.probes) {
        throw_internal("grammar: '{}' gives {} different probes, not {}", intent.id, made,
                       intent.probes);
      }
      const Row row = g.values(intent, Split::held_out, draw);
      Draw again = draw;  // the same choices
      const Dialogue d = make_dialogue(g, intent, Split::held_out, row, draw);
      const std::string prompt = asked(d);
      if (seen.contains(prompt)) continue;
      if (trained.empty() || !row.empty()) trained = training_says(intent, row);
      if (trained.contains(prompt)) continue;
      seen.insert(prompt);
      const std::string id = fmt::format("{}-{}-{}-{:03}", group_name(intent.group), intent.id,
                                         language_name(intent.language), ++made);
      ordered_json probe = make_probe(intent, row, d, id, options, draw);
      // Left out, not drawn anew: what stays is the same whatever this rule refuses.
      const Asked pattern = ask(intent, Split::held_out, without_values(row), again);
      const Question question{&intent, row, user_turns(d.turns), user_turns(pattern.turns)};
      if (training.has_pattern(question) || training.has_prompt(question)) continue;
      list.push_back(std::move(probe));
    }
  }
  const ordered_json file = {
      {"name", options.name},
      {"version", 1},
      {"defaults",
       {{"rules", ordered_json::array({{{"stops", true}}, {{"no_repetition", true}}})},
        {"max_tokens", 96}}},
      {"probes", list}};
  // A probe a line: short, and a change shows.
  std::string out =
      fmt::format("{{\"name\": {}, \"version\": 1,\n\"defaults\": {},\n\"probes\": [\n",
                  file["name"].dump(), file["defaults"].dump());
  for (size_t i = 0; i < list.size(); ++i) {
    out += list[i].dump() + (i + 1 < list.size() ? ",\n" : "\n");
  }
  return out + "]}\n";
}

}  // namespace nibble
