// SPDX-License-Identifier: MIT
#include "eval/probe_file.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "eval/json_place.h"

namespace nibble {
namespace {

using Json = OrderedJson;
constexpr uint64_t kMostBytes = uint64_t(256) << 20;
constexpr int64_t kMostTokens = 1 << 16;

ReplyLanguage language_at(const Json& j, const JsonPlace& place) {
  const std::string name = text_of(j, place);
  const auto language = language_from_name(name);
  if (!language) place.fail(fmt::format("'{}' is not one of zh, en", name));
  return *language;
}

int64_t tokens_at(const Json& j, const JsonPlace& place) {
  if (!j.is_number_integer() || j < 1 || j > kMostTokens) {
    place.fail(fmt::format("{} is not a whole number from 1 to {}", j.dump(), kMostTokens));
  }
  return j.get<int64_t>();
}

ProbeRule rule_at(const Json& j, const JsonPlace& place) {
  using Kind = ProbeRule::Kind;
  static const std::vector<std::pair<std::string, Kind>> kinds = {
      {"contains", Kind::contains},
      {"contains_any", Kind::contains_any},
      {"contains_any_word", Kind::contains_any_word},
      {"equals", Kind::equals},
      {"not_contains", Kind::not_contains},
      {"language", Kind::language},
      {"stops", Kind::stops},
      {"no_repetition", Kind::no_repetition}};
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds) names.push_back(name);
  check_keys(j, names, place);
  if (j.size() != 1) {
    place.fail(fmt::format("a rule has one key, found {}; write one object for each", j.size()));
  }
  const auto only = j.begin();
  const std::string key = only.key();
  const Json& value = only.value();
  ProbeRule rule;
  rule.kind = std::ranges::find(kinds, key, &std::pair<std::string, Kind>::first)->second;
  const JsonPlace here = place.at(key);
  switch (rule.kind) {
    case Kind::contains:
    case Kind::equals:
    case Kind::not_contains: rule.texts.push_back(text_of(value, here)); break;
    case Kind::contains_any:
    case Kind::contains_any_word:
      if (!value.is_array() || value.empty()) here.fail("expected a list of texts");
      for (const Json& text : value) rule.texts.push_back(text_of(text, here));
      break;
    case Kind::language: rule.language = language_at(value, here); break;
    case Kind::stops:
    case Kind::no_repetition:
      if (value != true) here.fail(fmt::format("expected true, found {}", value.dump()));
      break;
  }
  return rule;
}

std::vector<ProbeRule> rules_at(const Json& j, const JsonPlace& place,
                                const std::vector<ProbeRule>& defaults) {
  if (!j.is_array()) place.fail(fmt::format("expected a list, found {}", j.type_name()));
  std::vector<ProbeRule> rules;
  for (size_t i = 0; i < j.size(); ++i) {
    rules.push_back(rule_at(j[i], place.at(fmt::format("rule {}", i + 1))));
  }
  rules.insert(rules.end(), defaults.begin(), defaults.end());
  return rules;
}

// The messages, and which of them the model says itself.
void read_messages(Probe& probe, const Json& j, const JsonPlace& place) {
  if (!j.is_array() || j.empty()) place.fail("expected a list of messages");
  std::vector<Message>& messages = probe.messages;
  for (const Json& m : j) {
    check_keys(m, {"role", "content", "rules"}, place);
    const std::string role = text_of(required(m, "role", place), place.at("role"));
    if (role != "system" && role != "user" && role != "assistant") {
      place.fail(fmt::format("the role '{}' is not one of system, user, assistant", role));
    }
    const bool own = role == "assistant" && !m.contains("content");
    if (own && (messages.empty() || messages.back().role != Role::user)) {
      place.fail(
          "an assistant's message without content is the model's reply: it follows a user's");
    }
    if (m.contains("rules")) {
      if (!own)
        place.fail("rules of a message are for replies of the model: leave out its content");
    }
    if (own) {
      probe.own_turns.push_back({messages.size(), m.contains("rules")
                                                      ? rules_at(m["rules"], place.at("rules"), {})
                                                      : std::vector<ProbeRule>{}});
    }
    messages.push_back(
        {role_from_name(role),
         own ? std::string() : text_of(required(m, "content", place), place.at("content")),
         {}});
  }
  if (messages.back().role != Role::user) {
    place.fail("the last message must be the user's: the model answers it");
  }
}

}  // namespace

ProbeSet parse_probes(std::string_view text, const std::string& name) {
  const JsonPlace file{name};
  if (text.size() > kMostBytes) {
    file.fail(fmt::format("{} bytes, at most {} are taken", text.size(), kMostBytes));
  }
  const Json j = parse_strictly(text, file);
  check_keys(j, {"name", "version", "defaults", "probes"}, file);
  if (const Json& version = required(j, "version", file); version != 1) {
    file.fail(fmt::format("version {}, this program reads 1", version.dump()));
  }
  ProbeSet set;
  set.name = text_of(required(j, "name", file), file.at("name"));
  std::vector<ProbeRule> defaults;
  int64_t max_tokens = 64;
  if (const auto it = j.find("defaults"); it != j.end()) {
    const JsonPlace place = file.at("defaults");
    check_keys(*it, {"rules", "max_tokens"}, place);
    if (it->contains("rules")) defaults = rules_at((*it)["rules"], place.at("rules"), {});
    if (it->contains("max_tokens")) {
      max_tokens = tokens_at((*it)["max_tokens"], place.at("max_tokens"));
    }
  }
  const Json& probes = required(j, "probes", file);
  if (!probes.is_array() || probes.empty()) file.fail("'probes' is no list, or an empty one");
  std::unordered_set<std::string> ids;
  for (size_t i = 0; i < probes.size(); ++i) {
    const Json& p = probes[i];
    JsonPlace place = file.at(fmt::format("probe {}", i + 1));
    check_keys(p, {"id", "group", "language", "messages", "rules", "base_rules", "max_tokens"},
               place);
    Probe probe;
    probe.id = text_of(required(p, "id", place), place.at("id"));
    place = {fmt::format("{}: probe {} ('{}')", name, i + 1, probe.id)};
    if (!ids.insert(probe.id).second) place.fail("another probe has the same id");
    probe.group = text_of(required(p, "group", place), place.at("group"));
    if (probe.group.find_first_of("/=,") != std::string::npos) {
      place.fail(
          fmt::format("the group '{}' holds one of / = , which --min-score needs", probe.group));
    }
    probe.language = language_at(required(p, "language", place), place.at("language"));
    read_messages(probe, required(p, "messages", place), place.at("messages"));
    probe.rules =
        p.contains("rules") ? rules_at(p["rules"], place.at("rules"), defaults) : defaults;
    if (p.contains("base_rules")) {
      probe.base_rules = rules_at(p["base_rules"], place.at("base_rules"), defaults);
    }
    if (probe.rules.empty() || (probe.base_rules && probe.base_rules->empty())) {
      place.fail("no rules: every reply would pass");
    }
    probe.max_tokens =
        p.contains("max_tokens") ? tokens_at(p["max_tokens"], place.at("max_tokens")) : max_tokens;
    set.probes.push_back(std::move(probe));
  }
  return set;
}

ProbeFile read_probes(const std::filesystem::path& file) {
  std::error_code ec;
  if (const auto size = std::filesystem::file_size(file, ec); !ec && size > kMostBytes) {
    throw_format("{}: {} bytes, at most {} are taken", file.string(), size, kMostBytes);
  }
  const std::string text = read_text_file(file);
  return {parse_probes(text, file.string()), sha256_hex(text)};
}

}  // namespace nibble
