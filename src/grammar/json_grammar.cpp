// SPDX-License-Identifier: MIT
#include "grammar/json_grammar.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "grammar/json_values.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
using G = ByteGrammar;

// Keywords that say nothing about which values fit.
const std::set<std::string, std::less<>> kRemarks = {
    "title", "description", "default",  "examples",   "$schema",   "$id",   "$comment",
    "$defs", "definitions", "readOnly", "deprecated", "writeOnly", "strict"};
const std::map<std::string, std::set<std::string, std::less<>>, std::less<>> kOfType = {
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength"}},
    {"number", {}},
    {"integer", {}},
    {"boolean", {}},
    {"null", {}}};

class SchemaReader {
 public:
  SchemaReader(ByteGrammar& grammar, JsonValues& values, const Json& root)
      : g_(grammar), values_(values), root_(root) {}

  G::Rule read(const Json& schema, const std::string& where) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) throw_usage("{}: false fits nothing", where);
      return values_.any();
    }
    if (!schema.is_object()) throw_usage("{}: a schema is an object", where);
    if (schema.contains("$ref")) {
      check_keys(schema, {"$ref"}, where);
      return ref(schema["$ref"], where);
    }
    for (const char* one : {"anyOf", "oneOf"}) {
      if (schema.contains(one)) {
        check_keys(schema, {one}, where);
        return any_of(schema[one], where + "/" + one);
      }
    }
    if (schema.contains("allOf")) {
      check_keys(schema, {"allOf"}, where);
      const Json& all = schema["allOf"];
      if (!all.is_array() || all.size() != 1)
        throw_usage("{}/allOf: one schema is understood, not several", where);
      return read(all[0], where + "/allOf/0");
    }
    if (schema.contains("const") || schema.contains("enum")) return constants(schema, where);
    return typed(schema, where);
  }

 private:
  void check_keys(const Json& schema, const std::set<std::string, std::less<>>& known,
                  const std::string& where) const {
    for (const auto& [key, value] : schema.items()) {
      if (known.contains(key) || kRemarks.contains(key)) continue;
      throw_usage("{}: '{}' is not understood {}", where, key,
                  known.empty() ? "here" : fmt::format("beside '{}'", *known.begin()));
    }
  }

  // "#", "#/$defs/name": each once, so that a schema may contain itself.
  G::Rule ref(const Json& name, const std::string& where) {
    if (!name.is_string() || !name.get_ref<const std::string&>().starts_with("#"))
      throw_usage("{}/$ref: only '#/...', a place in the schema itself, is understood", where);
    const auto& path = name.get_ref<const std::string&>();
    if (const auto at = refs_.find(path); at != refs_.end()) return at->second;
    const Json* target = nullptr;
    try {
      target = &root_.at(Json::json_pointer(path.substr(1)));
    } catch (const Json::exception&) {
      throw_usage("{}/$ref: there is no '{}'", where, path);
    }
    const G::Rule rule = g_.add_rule();
    refs_.emplace(path, rule);
    const G::Rule read_rule = read(*target, path);
    g_.add(rule, {G::ref(read_rule)});
    return rule;
  }

  G::Rule any_of(const Json& list, const std::string& where) {
    if (!list.is_array() || list.empty()) throw_usage("{}: a list of schemas is needed", where);
    const G::Rule rule = g_.add_rule();
    for (size_t i = 0; i < list.size(); ++i) {
      const G::Rule one = read(list[i], fmt::format("{}/{}", where, i));
      g_.add(rule, {G::ref(one)});
    }
    return rule;
  }

  G::Rule constants(const Json& schema, const std::string& where) {
    check_keys(schema, {"const", "enum", "type"}, where);
    const bool one = schema.contains("const");
    if (one && schema.contains("enum")) throw_usage("{}: 'const' beside 'enum'", where);
    const Json list = one ? Json::array({schema["const"]}) : schema["enum"];
    if (!list.is_array() || list.empty()) throw_usage("{}/enum: a list of values is needed", where);
    const G::Rule rule = g_.add_rule();
    for (const Json& value : list) g_.add(rule, G::text(value.dump()));
    return rule;
  }

  G::Rule typed(const Json& schema, const std::string& where) {
    if (!schema.contains("type")) {
      check_keys(schema, {}, where);  // {}: anything
      return values_.any();
    }
    const Json& type = schema["type"];
    const Json types = type.is_array() ? type : Json::array({type});
    std::set<std::string, std::less<>> known = {"type"};
    for (const Json& t : types) {
      const auto at = t.is_string() ? kOfType.find(t.get_ref<const std::string&>()) : kOfType.end();
      if (at == kOfType.end()) throw_usage("{}/type: {} is no type", where, t.dump());
      known.insert(at->second.begin(), at->second.end());
    }
    if (types.empty()) throw_usage("{}/type: a type is needed", where);
    check_keys(schema, known, where);
    const G::Rule rule = g_.add_rule();
    for (const Json& t : types) {
      const std::string& name = t.get_ref<const std::string&>();
      if (name == "boolean") {
        g_.add(rule, G::text("true"));
        g_.add(rule, G::text("false"));
      } else if (name == "null") {
        g_.add(rule, G::text("null"));
      } else {
        g_.add(rule, {G::ref(one_type(name, schema, where))});
      }
    }
    return rule;
  }

  static int64_t limit(const Json& schema, const char* key, int64_t otherwise,
                       const std::string& where) {
    const auto at = schema.find(key);
    if (at == schema.end()) return otherwise;
    if (!at->is_number_unsigned() || at->get<uint64_t>() > uint64_t(1) << 30)
      throw_usage("{}/{}: a whole number is needed", where, key);
    return at->get<int64_t>();
  }

  G::Rule one_type(const std::string& type, const Json& schema, const std::string& where) {
    if (type == "number") return values_.number();
    if (type == "integer") return values_.integer();
    if (type == "object") return object(schema, where);
    const bool text = type == "string";
    const int64_t least = limit(schema, text ? "minLength" : "minItems", 0, where);
    const int64_t most = limit(schema, text ? "maxLength" : "maxItems", -1, where);
    if (most >= 0 && most < least) throw_usage("{}: at least {}, at most {}", where, least, most);
    if (text) return values_.string_of(least, most);
    const auto items = schema.find("items");
    const G::Rule item = items == schema.end() ? values_.any() : read(*items, where + "/items");
    return values_.array_of(item, least, most);
  }

  // Its properties in their order, those that are not required perhaps; more, where the schema
  // would allow them, need not come.
  G::Rule object(const Json& schema, const std::string& where) {
    const auto properties = schema.find("properties"), more = schema.find("additionalProperties");
    const bool named = properties != schema.end() && !properties->empty();
    if (named && !properties->is_object()) throw_usage("{}/properties: an object is needed", where);
    const auto required = required_of(schema, where);
    for (const std::string& name : required) {
      if (!named || !properties->contains(name))
        throw_usage("{}/required: '{}' is not among the properties", where, name);
    }
    if (!named) {
      if (more == schema.end() || *more == true) return values_.object();
      if (*more == false)
        return g_.add_rule({{G::byte('{'), G::ref(values_.space()), G::byte('}')}});
      return values_.map_of(read(*more, where + "/additionalProperties"));
    }
    // From the last property to the first: what may follow when something stands before it, or not.
    G::Rule behind = g_.add_rule({{G::ref(values_.space()), G::byte('}')}});
    G::Rule first = g_.add_rule({{G::byte('}')}});
    for (auto p = properties->rbegin(); p != properties->rend(); ++p) {
      const G::Rule value = read(p.value(), where + "/properties/" + p.key());
      const G::Rule key = values_.key_of(p.key());
      const bool must = required.contains(p.key());
      const G::Rule begin = g_.add_rule({{G::ref(key), G::ref(value), G::ref(behind)}});
      const G::Rule on =
          g_.add_rule({{G::ref(values_.space()), G::byte(','), G::ref(values_.space()), G::ref(key),
                        G::ref(value), G::ref(behind)}});
      if (!must) {
        g_.add(begin, {G::ref(first)});
        g_.add(on, {G::ref(behind)});
      }
      first = begin;
      behind = on;
    }
    return g_.add_rule({{G::byte('{'), G::ref(values_.space()), G::ref(first)}});
  }

  static std::set<std::string, std::less<>> required_of(const Json& schema,
                                                        const std::string& where) {
    std::set<std::string, std::less<>> out;
    const auto at = schema.find("required");
    if (at == schema.end()) return out;
    if (!at->is_array()) throw_usage("{}/required: a list of names is needed", where);
    for (const Json& name : *at) {
      if (!name.is_string()) throw_usage("{}/required: a list of names is needed", where);
      out.insert(name.get<std::string>());
    }
    return out;
  }

  ByteGrammar& g_;
  JsonValues& values_;
  const Json& root_;
  std::map<std::string, G::Rule> refs_;
};

}  // namespace

ByteGrammar any_json_object() {
  ByteGrammar g;
  g.start = JsonValues(g).object();
  return g;
}

ByteGrammar one_of_schemas(std::span<const SchemaBetween> schemas) {
  ByteGrammar g;
  JsonValues values(g);
  g.start = g.add_rule();
  for (const SchemaBetween& s : schemas) {
    G::Sequence all = G::text(s.before);
    all.push_back(G::ref(SchemaReader(g, values, *s.schema).read(*s.schema, "#")));
    for (const char c : s.after) all.push_back(G::byte(c));
    g.add(g.start, std::move(all));
  }
  return g;
}

ByteGrammar json_schema_grammar(const Json& schema) {
  const SchemaBetween alone{"", &schema, ""};
  return one_of_schemas({&alone, 1});
}

}  // namespace nibble
