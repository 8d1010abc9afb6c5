// SPDX-License-Identifier: MIT
// Strict reading of JSON files that people write: unknown keys, keys given twice, deep nesting and
// wrong types are FormatErrors that say where.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

using OrderedJson = nlohmann::ordered_json;

// Where in a file something is wrong.
struct JsonPlace {
  std::string text;  // "probes.json: probe 3 ('identity-zh-004')"
  [[noreturn]] void fail(const std::string& what) const;
  JsonPlace at(const std::string& more) const { return {text + ": " + more}; }
};

OrderedJson parse_strictly(std::string_view text, const JsonPlace& place);
// That j is an object with no other keys; suggests the nearest one.
void check_keys(const OrderedJson& j, const std::vector<std::string>& known,
                const JsonPlace& place);
const OrderedJson& required(const OrderedJson& j, const char* key, const JsonPlace& place);
std::string text_of(const OrderedJson& j, const JsonPlace& place);  // not empty, at most 1 MiB

}  // namespace nibble
