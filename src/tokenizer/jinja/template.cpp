// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/builtins/json.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace {

using Json = nlohmann::ordered_json;

bool known_role(std::string_view role) {
  static constexpr std::array<std::string_view, 8> roles = {
      "system", "user", "assistant", "tool", "developer", "function", "ipython", "model"};
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

// A message's role, where it is a known one, is the template's own word.
Value message(const Json& j, Budget& budget) {
  Value v = from_json(j, Origin::outside, budget);
  if (!v.dict()) return v;
  Dict d = *v.dict();
  for (auto& [key, value] : d.items) {
    if (key.text()->view() == "role" && value.text() && known_role(value.text()->view())) {
      value = written(value.text()->view());
    }
  }
  return DictPtr(std::make_shared<const Dict>(std::move(d)));
}

Value messages(const Json& list, Budget& budget) {
  std::vector<Value> out;
  for (const Json& j : list) out.push_back(message(j, budget));
  return make_list(std::move(out), budget);
}

bool number(std::string_view s, int& out) {
  const auto r = std::from_chars(s.data(), s.data() + s.size(), out);
  return r.ec == std::errc() && r.ptr == s.data() + s.size() && !s.empty() && s[0] != '-';
}

}  // namespace

TemplateError::TemplateError(ExitCode code, const std::string& name, const Raised& why)
    : Error(code, fmt::format("{}:{}:{}: {}: {}", name, why.at().line, why.at().column, why.kind(),
                              repair_utf8(why.reason()))),
      kind_(why.kind()),
      reason_(repair_utf8(why.reason())),
      at_(why.at()) {}

Template Template::compile(std::string_view source, std::string name) {
  Template t;
  t.name_ = std::move(name);
  t.source_ = std::make_shared<const std::string>(
      valid_utf8_prefix(source) == source.size() ? std::string(source) : repair_utf8(source));
  try {
    t.tree_ = std::make_shared<const Tree>(parse(*t.source_));
  } catch (const Raised& e) {
    throw TemplateError(ExitCode::file, t.name_, e);
  }
  return t;
}

Rendering Template::render(const Variables& variables, const RenderOptions& options) const {
  Budget budget(options.limits);
  Interpreter in(*tree_, budget, options.now);
  try {
    for (const auto& [name, v] : variables) in.set_variable(name, v);
    const Text out = in.render();
    return {std::string(out.view()), out.runs()};
  } catch (Raised& e) {
    e.set_at(in.at());
    throw TemplateError(ExitCode::usage, name_, e);
  }
}

bool Template::mentions(std::string_view variable) const {
  return tree_->symbols.find(variable) >= 0;
}

Template::Variables variables_from_json(const Json& object, const Limits& limits) {
  if (!object.is_object()) throw_usage("the variables of a template are a JSON object");
  Budget budget(limits);
  Template::Variables out;
  try {
    for (const auto& [name, j] : object.items()) {
      const bool token = std::string_view(name).ends_with("_token");
      if (name == "messages" && j.is_array()) {
        out.emplace_back(name, messages(j, budget));
      } else {
        out.emplace_back(name, from_json(j, token ? Origin::written : Origin::outside, budget));
      }
    }
  } catch (const Raised& e) {
    throw TemplateError(ExitCode::usage, "variables", e);
  }
  return out;
}

std::tm time_now() {
  const std::time_t t = std::time(nullptr);
  std::tm out = {};
  ::localtime_r(&t, &out);
  return out;
}

std::tm parse_time(std::string_view text) {
  std::tm t = {};
  const auto part = [&](size_t at, size_t n, int& out) {
    return text.size() >= at + n && number(text.substr(at, n), out);
  };
  bool fine = part(0, 4, t.tm_year) && part(5, 2, t.tm_mon) && part(8, 2, t.tm_mday) &&
              text[4] == '-' && text[7] == '-' && t.tm_mon >= 1 && t.tm_mon <= 12 &&
              t.tm_mday >= 1 && t.tm_mday <= 31;
  if (fine && text.size() != 10) {
    fine = text.size() == 19 && part(11, 2, t.tm_hour) && part(14, 2, t.tm_min) &&
           part(17, 2, t.tm_sec) && (text[10] == 'T' || text[10] == ' ') && text[13] == ':' &&
           text[16] == ':' && t.tm_hour < 24 && t.tm_min < 60 && t.tm_sec < 60;
  }
  if (!fine) {
    throw_usage("'{}' is not a day or time; expected 2026-11-16 or 2026-11-16T12:30:00", text);
  }
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  const int day = t.tm_mday;
  t.tm_isdst = -1;
  std::tm filled = t;
  ::timegm(&filled);  // the day of the week and of the year
  if (filled.tm_mday != day) throw_usage("'{}': there is no such day", text);
  return filled;
}

}  // namespace nibble::jinja
