// SPDX-License-Identifier: MIT
#include "eval/probe_score.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "generate/health.h"

namespace nibble {
namespace {

// FNV-1a with a final mix, so that ids that differ in their last digit are far apart.
uint64_t hash_of(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  return h ^ (h >> 33);
}

bool is_content(const ProbeRule& rule) {
  using Kind = ProbeRule::Kind;
  return rule.kind == Kind::contains || rule.kind == Kind::contains_any ||
         rule.kind == Kind::contains_any_word || rule.kind == Kind::equals;
}

std::string key_of(const std::vector<ProbeRule>& rules) {
  std::string key;
  for (const ProbeRule& r : rules) key += describe(r) + "\n";
  return key;
}

double parse_percent(std::string_view text, std::string_view whole) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(v) ||
      std::abs(v) > 100) {
    throw_usage("--min-score '{}': '{}' is not a percentage up to 100", whole, text);
  }
  return v;
}

const Score* find_score(const ProbeScores& s, const std::string& group,
                        const std::string& language) {
  const GroupScore* g = s.find(group);
  if (!g || language.empty()) return g ? &g->all : nullptr;
  const auto it = g->languages.find(language);
  return it == g->languages.end() ? nullptr : &it->second;
}

std::string place_of(const std::string& group, const std::string& language) {
  return language.empty() ? group : group + "/" + language;
}

// The thresholds with the plain numbers spelled out: one for each group that is not named.
std::vector<MinScore> spelled_out(std::span<const MinScore> wanted, const ProbeScores& scores) {
  std::vector<MinScore> all;
  for (const MinScore& m : wanted) {
    if (!m.group.empty()) {
      all.push_back(m);
      continue;
    }
    for (const GroupScore& g : scores.groups) {
      const bool named = std::ranges::any_of(wanted, [&](const MinScore& other) {
        return other.group == g.name && other.language.empty();
      });
      if (!named) all.push_back({g.name, "", m.from_base, m.percent});
    }
  }
  return all;
}

}  // namespace

const GroupScore* ProbeScores::find(std::string_view group) const {
  const auto it = std::ranges::find(groups, group, &GroupScore::name);
  return it == groups.end() ? nullptr : &*it;
}

double Score::standard_error() const {
  const double share = percent() / 100;
  return total > 1 ? 100 * std::sqrt(share * (1 - share) / double(total - 1)) : 0;
}

ProbeScores score_probes(std::span<const ProbeResult> results) {
  ProbeScores s;
  const auto count = [](Score& to, bool passed) { to.passed += passed, ++to.total; };
  for (const ProbeResult& r : results) {
    auto it = std::ranges::find(s.groups, r.probe->group, &GroupScore::name);
    if (it == s.groups.end()) it = s.groups.insert(it, {r.probe->group, {}, {}});
    count(it->all, r.passed());
    count(it->languages[std::string(language_name(r.probe->language))], r.passed());
    count(s.all, r.passed());
  }
  return s;
}

std::vector<const Probe*> sample_probes(const ProbeSet& set, int64_t per_group) {
  std::vector<const Probe*> chosen;
  if (per_group <= 0) {
    for (const Probe& p : set.probes) chosen.push_back(&p);
    return chosen;
  }
  // Each group's probes by language, in the order of their hashes.
  std::map<std::string, std::map<ReplyLanguage, std::vector<const Probe*>>> groups;
  for (const Probe& p : set.probes) groups[p.group][p.language].push_back(&p);
  for (auto& [name, languages] : groups) {
    for (auto& [language, probes] : languages) {
      std::ranges::sort(probes, {},
                        [](const Probe* p) { return std::pair(hash_of(p->id), p->id); });
    }
    int64_t taken = 0;
    for (size_t i = 0; taken < per_group; ++i) {
      const int64_t before = taken;
      for (auto& [language, probes] : languages) {
        if (i < probes.size() && taken < per_group) chosen.push_back(probes[i]), ++taken;
      }
      if (taken == before) break;
    }
  }
  std::ranges::sort(chosen);  // of one vector: the order of the set
  return chosen;
}

std::vector<MinScore> parse_min_scores(std::string_view text) {
  std::vector<MinScore> all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, comma - begin);
    begin = comma + 1;
    MinScore m;
    std::string_view value = part;
    if (const size_t equals = part.find('='); equals != std::string_view::npos) {
      const std::string_view name = part.substr(0, equals);
      const size_t slash = name.find('/');
      m.group = name.substr(0, slash);
      if (slash != std::string_view::npos) m.language = name.substr(slash + 1);
      value = part.substr(equals + 1);
      if (m.group.empty() || (slash != std::string_view::npos && m.language.empty())) {
        throw_usage("--min-score '{}': expected GROUP=PERCENT or GROUP/LANGUAGE=PERCENT", part);
      }
    }
    if (value.starts_with("base")) {
      m.from_base = true;
      value.remove_prefix(4);
      if (value.starts_with("+")) value.remove_prefix(1);
      m.percent = value.empty() ? 0 : parse_percent(value, part);
    } else {
      m.percent = parse_percent(value, part);
    }
    if (!m.from_base && m.percent < 0) {
      throw_usage("--min-score '{}': a score is not below 0", part);
    }
    const bool again = std::ranges::any_of(all, [&](const MinScore& other) {
      return other.group == m.group && other.language == m.language;
    });
    if (again) {
      throw_usage("--min-score '{}': {} is given twice", text,
                  m.group.empty() ? "the score of all groups" : place_of(m.group, m.language));
    }
    all.push_back(std::move(m));
  }
  if (all.empty()) throw_usage("--min-score is empty: expected 95, or identity=98,retention=95");
  return all;
}

void check_min_scores(std::span<const MinScore> wanted, const ProbeScores& of,
                      const ProbeScores* baseline) {
  for (const MinScore& m : spelled_out(wanted, of)) {
    if (!find_score(of, m.group, m.language)) {
      std::string groups;
      for (const GroupScore& g : of.groups) groups += (groups.empty() ? "" : ", ") + g.name;
      throw_usage("--min-score {}: no probe is of it; the groups are {}",
                  place_of(m.group, m.language), groups);
    }
    if (m.from_base && !(baseline && find_score(*baseline, m.group, m.language))) {
      throw_usage("--min-score {}=base: there is no baseline with that group",
                  place_of(m.group, m.language));
    }
  }
}

std::vector<std::string> low_scores(const ProbeScores& scores, std::span<const MinScore> wanted,
                                    const ProbeScores* baseline) {
  std::vector<std::string> low;
  for (const MinScore& m : spelled_out(wanted, scores)) {
    const Score* s = find_score(scores, m.group, m.language);
    if (!s) continue;
    double least = m.percent;
    if (m.from_base) {
      const Score* base = baseline ? find_score(*baseline, m.group, m.language) : nullptr;
      if (!base) continue;
      least += base->percent();
    }
    // Shares of counts: a threshold met exactly is met.
    if (s->percent() >= least - 1e-9) continue;
    low.push_back(fmt::format("{} {:.1f} % ({} of {}), expected {:.1f} %",
                              place_of(m.group, m.language), s->percent(), s->passed, s->total,
                              least));
  }
  return low;
}

IdentityMarks::IdentityMarks(const ProbeSet& set) {
  std::map<std::string, std::vector<ProbeRule>> distinct;
  for (const Probe& p : set.probes) {
    if (p.group != kIdentityGroup) continue;
    std::vector<ProbeRule> contents;
    std::ranges::copy_if(p.rules, std::back_inserter(contents), is_content);
    if (!contents.empty()) distinct.emplace(key_of(contents), std::move(contents));
  }
  for (auto& [key, rules] : distinct) marks_.push_back(std::move(rules));
}

bool IdentityMarks::in(const ProbeReply& reply) const {
  return std::ranges::any_of(marks_, [&](const std::vector<ProbeRule>& rules) {
    return std::ranges::none_of(
        rules, [&](const ProbeRule& r) { return rule_problem(r, reply).has_value(); });
  });
}

ReplySigns reply_signs(std::span<const ProbeResult> results, const IdentityMarks& marks) {
  ReplySigns signs;
  std::map<std::string, Score> control;  // passed: gave the identity
  for (const ProbeResult& r : results) {
    const bool bad = is_unhealthy(r.reply.reason) || repetition_reason(r.reply.ids, r.reply.text);
    signs.repeating += bad;
    signs.not_finite += r.reply.reason == FinishReason::not_finite;
    if (r.probe->group == kIdentityGroup) continue;
    Score& s = control[r.probe->group];
    ++s.total;
    // Right answers may hold the name, too.
    if (!r.passed() && marks.in(r.reply)) ++s.passed;
  }
  if (!results.empty()) signs.repeating /= double(results.size());
  for (const auto& [group, score] : control) {
    if (score.percent() / 100 <= signs.identity) continue;
    signs.identity = score.percent() / 100;
    signs.identity_group = group;
  }
  return signs;
}

}  // namespace nibble
