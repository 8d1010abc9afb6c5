// SPDX-License-Identifier: MIT
// --run-config: the same options as keys of a TOML file. The command line wins.
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>

#include "apps/options.h"
#include "core/error.h"
#include "core/file.h"

namespace nibble {
namespace {

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* v = node.as_integer()) return fmt::format("{}", v->get());
  if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
  if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
  throw_usage("{}: expected a string, a number, a boolean or an array of those", where);
}

// The texts to set a field with: several for an array given to a repeated field.
std::vector<std::string> values_of(const toml::node& node, const Field& field,
                                   const std::string& where) {
  const toml::array* array = node.as_array();
  if (!array) return {scalar_text(node, where)};
  std::vector<std::string> texts;
  for (const toml::node& item : *array) texts.push_back(scalar_text(item, where));
  if (field.kind == FieldKind::repeated) return texts;
  if (field.kind != FieldKind::ids) throw_usage("{}: expected one value, found an array", where);
  std::string joined;
  for (const std::string& t : texts) joined += (joined.empty() ? "" : ",") + t;
  return {joined};
}

Field* find_key(Fields& fields, const std::string& key) {
  if (Field* f = fields.find("--" + key)) return f;
  for (Field& f : fields.all()) {
    if (f.positional() && f.key() == key) return &f;
  }
  return nullptr;
}

}  // namespace

void apply_run_config(Fields& fields, const std::filesystem::path& file, const std::string& command,
                      const ExplainUnknown& explain) {
  const std::string text = read_text_file(file, 16 << 20);
  toml::table table;
  try {
    table = toml::parse(text, file.string());
  } catch (const toml::parse_error& e) {
    throw_format("{}: line {}: not valid TOML: {}", file.string(), e.source().begin.line,
                 e.description());
  }
  std::vector<const Field*> from_command_line;
  for (const Field& f : fields.all()) {
    if (f.given()) from_command_line.push_back(&f);
  }
  for (const auto& [toml_key, node] : table) {
    const std::string key(toml_key.str());
    const std::string where = fmt::format("{}: {}", file.string(), key);
    if (key == "command") {
      const std::string wanted = scalar_text(node, where);
      if (wanted != command) {
        throw_usage("{} says '{}', but the command given is '{}'", where, wanted, command);
      }
      continue;
    }
    if (key == "stage" || key == "stages") {
      throw_usage("{}: a chain of stages is not in this version", where);
    }
    Field* f = find_key(fields, key);
    if (!f) throw_usage("{}: {}", file.string(), explain("--" + key));
    if (std::ranges::find(from_command_line, f) != from_command_line.end()) continue;
    if (f->given()) throw_usage("{} and {} are the same option, given twice", f->given_as, where);
    for (const std::string& value : values_of(node, *f, where)) {
      const std::string wrong = f->set(value);
      if (!wrong.empty()) throw_usage("{}: '{}' {}", where, value, wrong);
    }
    f->given_as = where;
  }
}

}  // namespace nibble
