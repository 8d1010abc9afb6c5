// SPDX-License-Identifier: MIT
// --run-config: the same options as keys of a TOML file. The command line wins.
#include "apps/options/run_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/toml.h"

namespace nibble {
namespace {

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_integer()) return fmt::format("{}", v->get());
  if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
  if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
  throw_usage("{}: expected a string, a number, a boolean or an array of those", where);
}

ConfigKey config_key(const std::string& key, const toml::node& node, const std::string& place) {
  ConfigKey k{key, {}, false, place};
  if (const toml::array* array = node.as_array()) {
    k.array = true;
    for (const toml::node& item : *array) k.texts.push_back(scalar_text(item, k.where()));
  } else {
    k.texts.push_back(scalar_text(node, k.where()));
  }
  return k;
}

// The texts to set a field with: several for an array given to a repeated field.
std::vector<std::string> values_of(const ConfigKey& k, const Field& field) {
  if (!k.array || field.kind == FieldKind::repeated) return k.texts;
  if (field.kind != FieldKind::ids)
    throw_usage("{}: expected one value, found an array", k.where());
  std::string joined;
  for (const std::string& t : k.texts) joined += (joined.empty() ? "" : ",") + t;
  return {joined};
}

bool plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

ConfigStage config_stage(const toml::node& node, size_t number, const std::string& file) {
  const toml::table* table = node.as_table();
  ConfigStage stage;
  stage.name = fmt::format("stage{}", number);
  stage.place = fmt::format("{}: stage {}", file, number);
  if (!table) throw_usage("{}: expected a table, written [[stage]]", stage.place);
  if (const toml::node* name = table->get("name")) {
    stage.name = scalar_text(*name, stage.place + ": name");
    if (!plain_name(stage.name)) {
      throw_usage("{}: name: '{}' must be a plain file name", stage.place, stage.name);
    }
  }
  stage.place += fmt::format(" ({})", stage.name);
  for (const auto& [toml_key, value] : *table) {
    const std::string key(toml_key.str());
    if (key == "name") continue;
    if (key == "command") {
      stage.command = scalar_text(value, stage.place + ": command");
    } else {
      stage.keys.push_back(config_key(key, value, stage.place));
    }
  }
  return stage;
}

}  // namespace

RunConfig read_run_config(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, 16 << 20);
  const toml::table table = parse_toml(text, file.string());
  RunConfig config;
  config.file = file;
  const std::string place = file.string();
  for (const auto& [toml_key, node] : table) {
    const std::string key(toml_key.str());
    if (key == "command") {
      config.command = scalar_text(node, place + ": command");
    } else if (key == "stage") {
      const toml::array* stages = node.as_array();
      if (!stages || stages->empty()) {
        throw_usage("{}: stage: a chain is written as tables [[stage]], one or more", place);
      }
      for (size_t i = 0; i < stages->size(); ++i) {
        config.stages.push_back(config_stage(*stages->get(i), i + 1, place));
      }
    } else if (key == "stages") {
      throw_usage("{}: stages: each stage of a chain is a table [[stage]]", place);
    } else {
      config.keys.push_back(config_key(key, node, place));
    }
  }
  return config;
}

Field* find_key(Fields& fields, const std::string& key) {
  if (Field* f = fields.find("--" + key)) return f;
  for (Field& f : fields.all()) {
    if (f.positional() && f.key() == key) return &f;
  }
  return nullptr;
}

void apply_config_keys(Fields& fields, std::span<const ConfigKey> keys,
                       const ExplainUnknown& explain, UnknownKeys unknown) {
  std::vector<const Field*> settled;
  for (const Field& f : fields.all()) {
    if (f.given()) settled.push_back(&f);
  }
  for (const ConfigKey& k : keys) {
    Field* f = find_key(fields, k.key);
    if (!f && unknown == UnknownKeys::skip) continue;
    if (!f) throw_usage("{}: {}", k.place, explain("--" + k.key));
    if (std::ranges::find(settled, f) != settled.end()) continue;
    if (f->given()) {
      throw_usage("{} and {} are the same option, given twice", f->given_as, k.where());
    }
    for (const std::string& value : values_of(k, *f)) {
      const std::string wrong = f->set(value);
      if (!wrong.empty()) throw_usage("{}: '{}' {}", k.where(), value, wrong);
    }
    f->given_as = k.where();
  }
}

void apply_run_config(Fields& fields, const RunConfig& config, const std::string& command,
                      const ExplainUnknown& explain) {
  if (!config.command.empty() && config.command != command) {
    throw_usage("{}: command says '{}', but the command given is '{}'", config.file.string(),
                config.command, command);
  }
  if (!config.stages.empty()) {
    throw_usage("{}: a chain of stages is for train and pretrain, not for {}", config.file.string(),
                command);
  }
  apply_config_keys(fields, config.keys, explain);
}

void apply_run_config(Fields& fields, const std::filesystem::path& file, const std::string& command,
                      const ExplainUnknown& explain) {
  apply_run_config(fields, read_run_config(file), command, explain);
}

}  // namespace nibble
