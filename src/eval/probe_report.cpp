// SPDX-License-Identifier: MIT
#include "eval/probe_report.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

Json score_json(const Score& s) {
  return {{"passed", s.passed},
          {"total", s.total},
          {"percent", s.percent()},
          {"standard_error", s.standard_error()}};
}

Score score_from(const nlohmann::json& j, const std::string& where) {
  const auto count = [&](const char* key) {
    const auto it = j.find(key);
    if (it == j.end() || !it->is_number_integer() || *it < 0 || *it > int64_t(1) << 40) {
      throw_format("{}: '{}' is no count", where, key);
    }
    return it->get<int64_t>();
  };
  if (!j.is_object()) throw_format("{}: a score is no object", where);
  const Score s{count("passed"), count("total")};
  if (s.passed > s.total) throw_format("{}: {} passed of {}", where, s.passed, s.total);
  return s;
}

const Score* find(const ProbeScores* scores, const std::string& group,
                  const std::string& language) {
  if (!scores) return nullptr;
  if (group.empty()) return &scores->all;
  const GroupScore* g = scores->find(group);
  if (!g || language.empty()) return g ? &g->all : nullptr;
  const auto it = g->languages.find(language);
  return it == g->languages.end() ? nullptr : &it->second;
}

}  // namespace

std::string score_table(const ProbeScores& scores, const ProbeScores* before) {
  size_t width = 5;
  for (const GroupScore& g : scores.groups) width = std::max(width, g.name.size());
  std::string text = fmt::format("{:<{}}  language  passed  of    score", "group", width);
  if (before) text += "   before  change";
  text += "\n";
  const auto line = [&](const std::string& group, const std::string& language, const Score& s) {
    text += fmt::format("{:<{}}  {:<8}  {:>6}  {:<5} {:>5.1f} %", group.empty() ? "all" : group,
                        width, language.empty() ? "all" : language, s.passed, s.total, s.percent());
    if (before) {
      const Score* b = find(before, group, language);
      text += b ? fmt::format("  {:>5.1f} %  {:+.1f}", b->percent(), s.percent() - b->percent())
                : "        -  -";
    }
    text += "\n";
  };
  for (const GroupScore& g : scores.groups) {
    if (g.languages.size() > 1) {
      for (const auto& [language, score] : g.languages) line(g.name, language, score);
      line(g.name, "", g.all);
    } else {
      line(g.name, g.languages.begin()->first, g.all);
    }
  }
  if (scores.groups.size() > 1) line("", "", scores.all);
  return text;
}

Json scores_json(const ProbeScores& scores) {
  Json groups = Json::array();
  for (const GroupScore& g : scores.groups) {
    Json group = {{"name", g.name}};
    group.update(score_json(g.all));
    for (const auto& [language, score] : g.languages) {
      group["languages"][language] = score_json(score);
    }
    groups.push_back(std::move(group));
  }
  Json j = {{"groups", std::move(groups)}};
  j.update(score_json(scores.all));
  return j;
}

ProbeScores scores_from_json(const nlohmann::json& j, const std::string& where) {
  if (!j.is_object() || !j.contains("groups") || !j["groups"].is_array()) {
    throw_format("{}: no scores by group", where);
  }
  ProbeScores scores;
  for (const nlohmann::json& g : j["groups"]) {
    if (!g.is_object() || !g.contains("name") || !g["name"].is_string()) {
      throw_format("{}: a group without a name", where);
    }
    GroupScore group{g["name"], score_from(g, where), {}};
    if (g.contains("languages")) {
      if (!g["languages"].is_object()) throw_format("{}: 'languages' is no object", where);
      for (const auto& [language, score] : g["languages"].items()) {
        group.languages[language] = score_from(score, where);
      }
    }
    scores.groups.push_back(std::move(group));
  }
  scores.all = score_from(j, where);
  return scores;
}

Json result_json(const ProbeResult& r) {
  Json j = {{"id", r.probe->id},
            {"group", r.probe->group},
            {"language", language_name(r.probe->language)},
            {"prompt", prompt_text(r.messages)},
            {"reply", r.reply.text},
            {"tokens", r.reply.ids.size()},
            {"finish", finish_reason_name(r.reply.reason)},
            {"passed", r.passed()}};
  if (!r.passed()) j["failed"] = r.problem;
  return j;
}

Json turns_json(const ProbeResult& r) {
  Json turns = Json::array();
  for (const Message& m : r.messages) {
    turns.push_back({{"role", role_name(m.role)}, {"content", m.content}});
  }
  turns.push_back({{"role", "assistant"}, {"content", r.reply.text}});
  return turns;
}

void write_probe_report(const std::filesystem::path& file, const ProbeReportInfo& info,
                        const ProbeScores& scores, std::span<const ProbeResult> results) {
  Json j = {{"probes", info.probes},         {"probes_hash", info.hash},
            {"model", info.model},           {"backend", info.backend},
            {"rules", info.rules},           {"passed", info.passed},
            {"below_threshold", info.low},   {"seconds", info.seconds},
            {"scores", scores_json(scores)}, {"results", Json::array()}};
  for (const ProbeResult& r : results) {
    j["results"].push_back(result_json(r));
    j["results"].back()["turns"] = turns_json(r);
  }
  replace_file(file, j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string passed_as_data(std::span<const ProbeResult> results) {
  std::string lines;
  for (const ProbeResult& r : results) {
    if (!r.passed()) continue;
    lines += Json{{"messages", turns_json(r)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
    lines += '\n';
  }
  return lines;
}

ProbeBaseline read_probe_report(const std::filesystem::path& file) {
  const nlohmann::json j = parse_json_or_discard<nlohmann::json>(read_text_file(file));
  if (!j.is_object() || !j.contains("scores")) {
    throw_format("{} is no report of check --probe-report: it has no 'scores'", file.string());
  }
  ProbeBaseline b;
  b.scores = scores_from_json(j["scores"], file.string());
  b.model = j.contains("model") && j["model"].is_string() ? j["model"] : "";
  b.hash = j.contains("probes_hash") && j["probes_hash"].is_string() ? j["probes_hash"] : "";
  if (j.contains("results") && j["results"].is_array()) {
    for (const nlohmann::json& r : j["results"]) {
      if (r.is_object() && r.contains("id") && r["id"].is_string() && r.contains("turns") &&
          r["turns"].is_array()) {
        b.replies[r["id"]] = r.dump();
      }
    }
  }
  return b;
}

nlohmann::json dialogues_json(std::span<const ProbeResult> results, const ProbeBaseline* before,
                              int64_t most) {
  // One of each group in turn, conversations first: they show the most.
  std::map<std::string, std::vector<const ProbeResult*>> groups;
  std::vector<std::string> names;
  for (const ProbeResult& r : results) {
    if (groups[r.probe->group].empty()) names.push_back(r.probe->group);
    groups[r.probe->group].push_back(&r);
  }
  for (auto& [name, list] : groups) {
    std::ranges::stable_sort(list, std::greater<>(),
                             [](const ProbeResult* r) { return r->messages.size(); });
  }
  nlohmann::json all = nlohmann::json::array();
  for (size_t i = 0; int64_t(all.size()) < most && i < results.size(); ++i) {
    for (const std::string& name : names) {
      if (i >= groups[name].size() || int64_t(all.size()) == most) continue;
      const ProbeResult& r = *groups[name][i];
      nlohmann::json d = {
          {"id", r.probe->id}, {"group", name}, {"passed", r.passed()}, {"now", turns_json(r)}};
      if (before && before->replies.contains(r.probe->id)) {
        const auto was = parse_json<nlohmann::json>(before->replies.at(r.probe->id));
        d["before"] = was["turns"];
        d["passed_before"] = was.contains("passed") && was["passed"] == true;
      }
      all.push_back(std::move(d));
    }
  }
  return all;
}

}  // namespace nibble
