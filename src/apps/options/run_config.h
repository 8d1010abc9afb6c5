// SPDX-License-Identifier: MIT
// A --run-config file, read: keys with their values as text, and the stages of a chain.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "apps/options/options.h"

namespace nibble {

struct ConfigKey {
  std::string key;
  std::vector<std::string> texts;  // one, or those of an array
  bool array = false;
  std::string place;  // "run.toml", "run.toml: stage 2 (gentle)"
  std::string where() const { return place + ": " + key; }
};

struct ConfigStage {
  std::string name, command;  // command: empty where the file does not say
  std::string place;
  std::vector<ConfigKey> keys;
};

struct RunConfig {
  std::filesystem::path file;
  std::string command;  // empty where the file does not say
  std::vector<ConfigKey> keys;
  std::vector<ConfigStage> stages;  // empty: no chain
};

// Throws FormatError for what is not TOML and UsageError for what no option could hold.
RunConfig read_run_config(const std::filesystem::path& file);

enum class UnknownKeys { refuse, skip };
// Sets the fields that have no value yet. Throws UsageError naming file, stage and key.
void apply_config_keys(Fields& fields, std::span<const ConfigKey> keys,
                       const ExplainUnknown& explain, UnknownKeys unknown = UnknownKeys::refuse);
// The option a key of a file means; null when there is none.
Field* find_key(Fields& fields, const std::string& key);
// For a file without stages, and the command given.
void apply_run_config(Fields& fields, const RunConfig& config, const std::string& command,
                      const ExplainUnknown& explain);

}  // namespace nibble
