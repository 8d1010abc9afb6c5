// SPDX-License-Identifier: MIT
// JSON as a grammar: any value, or what a JSON schema describes.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "grammar/byte_grammar.h"

namespace nibble {

// Any JSON object.
ByteGrammar any_json_object();
// What fits the schema: of objects the properties it names, in its order. UsageError names what is
// not understood: nothing is left out silently.
ByteGrammar json_schema_grammar(const nlohmann::ordered_json& schema);
// One of several, each between two texts: a call of one of several functions, say. The schemas
// outlive the call only.
struct SchemaBetween {
  std::string before;
  const nlohmann::ordered_json* schema;
  std::string after;
};
ByteGrammar one_of_schemas(std::span<const SchemaBetween> schemas);

}  // namespace nibble
