// SPDX-License-Identifier: MIT
#include "apps/options/user_defaults.h"

#include <algorithm>
#include <cstdlib>

#include "apps/options/run_config.h"
#include "core/error.h"
#include "core/log.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "NIBBLE_MODEL";

std::string environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

bool given(Fields& fields, std::initializer_list<const char*> flags) {
  return std::ranges::any_of(flags, [&](const char* flag) {
    const Field* f = fields.find(flag);
    return f && f->given();
  });
}

// Whether a model is wanted and the line names none. Random weights, a recording or a tokenizer
// alone take the place of one.
bool wants_model(Fields& fields, const std::string& command) {
  const Field* model = fields.find("--model");
  if (!model || model->positional() || command == "smoke") return false;
  if (given(fields, {"--model", "--weight", "--model-dir", "--random-weights", "--compare"})) {
    return false;
  }
  if ((command == "tokenize" || command == "render") && given(fields, {"--tokenizer"})) {
    return false;
  }
  return command != "plan" || !given(fields, {"--config"});
}

void set_model(Fields& fields, const std::string& model, const std::string& where) {
  if (model.empty()) throw_usage("{} is empty, expected a model", where);
  Field& f = *fields.find("--model");
  const std::string wrong = f.set(model);
  if (!wrong.empty()) throw_usage("{}: '{}' {}", where, model, wrong);
  f.given_as = where;
  log_info("model {} ({})", model, where);
}

}  // namespace

fs::path user_state_folder() {
  const std::string state = environment_text("XDG_STATE_HOME"), home = environment_text("HOME");
  if (state.starts_with("/")) return fs::path(state) / "nibble";  // else to be ignored
  return home.starts_with("/") ? fs::path(home) / ".local" / "state" / "nibble" : fs::path();
}

fs::path user_config_file() {
  std::string base = environment_text("XDG_CONFIG_HOME");
  // The specification: a path that is not absolute is to be ignored.
  if (base.empty() || base.front() != '/') {
    const std::string home = environment_text("HOME");
    if (home.empty()) return {};
    base = home + "/.config";
  }
  return fs::path(base) / "nibble" / "config.toml";
}

void apply_user_defaults(Fields& fields, const std::string& command, const KeyIsKnown& known,
                         const ExplainUnknown& explain) {
  const bool model = wants_model(fields, command);
  const std::string named = environment_text(kVariable);
  if (model && !named.empty()) set_model(fields, named, kVariable);
  const fs::path file = user_config_file();
  std::error_code ec;
  if (file.empty() || !fs::exists(file, ec)) return;
  const RunConfig config = read_run_config(file);
  if (!config.command.empty() || !config.stages.empty()) {
    throw_usage(
        "{}: it holds defaults of all commands; a command or stages belong in a file for "
        "--run-config",
        file.string());
  }
  std::vector<ConfigKey> others;
  for (const ConfigKey& k : config.keys) {
    if (!known(k.key)) throw_usage("{}: {}", k.place, explain("--" + k.key));
    if (k.key != "model") {
      others.push_back(k);
    } else if (model && named.empty()) {
      if (k.array) throw_usage("{}: expected one value, found an array", k.where());
      set_model(fields, k.texts.front(), k.where());
    }
  }
  apply_config_keys(fields, others, explain, UnknownKeys::skip);
}

}  // namespace nibble
