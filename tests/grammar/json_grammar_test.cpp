// SPDX-License-Identifier: MIT
// Schemas as grammars: which texts they take, and which they leave out; random walks through them
// give JSON; masks of tokens are those that each token's bytes give.
#include "grammar/json_grammar.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "grammar/token_masks.h"
#include "support/paths.h"

namespace nibble::test {
namespace {

using Json = nlohmann::ordered_json;

bool takes(GrammarStates& g, std::string_view text) {
  GrammarStates::State s = g.start();
  for (const char c : text) s = g.next(s, uint8_t(c));
  return s != GrammarStates::kDead && g.complete(s);
}
GrammarStates of(const char* schema) {
  return GrammarStates(json_schema_grammar(parse_json<Json>(schema)));
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> fits, does_not;
};

TEST(JsonGrammar, TakesWhatFits) {
  const SchemaCase cases[] = {
      {R"({"type": "boolean"})", {"true", "false"}, {"", "tru", "truee", "null", "\"true\""}},
      {R"({"type": ["integer", "null"]})", {"0", "-12", "null"}, {"1.5", "01", "-", "+1", "1e3"}},
      {R"({"type": "number"})", {"0", "-1.25e-7", "1E9"}, {".5", "1.", "1e", "NaN", "--1"}},
      {R"({"type": "string", "minLength": 1, "maxLength": 3})",
       {R"("a")", R"("你好吗")", R"("\n\"x")", R"("\u00e9")"},
       {R"("")", R"("abcd")", "\"a\nb\"", R"("\x")", "a", "\"\xff\"", "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"", R"("\ud800")"}},
      {R"({"enum": ["red", 5, null, {"a": [1]}]})",
       {"\"red\"", "5", "null", R"({"a":[1]})"},
       {"\"re\"", "55", "\"blue\""}},
      {R"({"const": "x"})", {"\"x\""}, {"\"y\"", ""}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1,2]", "[1, 2, 3]", "[ 1 , 2 ]"},
       {"[]", "[1]", "[1,2,3,4]", "[1,]", "[1 2]", "[\"1\",2]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"type": "array"})", {"[]", "[1]", R"([[], {"a": null}, "x"])"}, {"[", "[,]", "{}"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"},
           "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false})",
       {R"({"b":true})", R"({"a": 1, "b": false})", R"({"b":true,"c":null})",
        R"({"a":1,"b":true,"c":null})", "{\n  \"b\": true\n}"},
       {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":true,})", R"({,"b":true})",
        R"({"b":true,"d":1})", R"({"b":true "c":null})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})",
       {"{}", "{ }", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {R"({"a":1,"a":1})", R"({,"b":1})"}},
      {R"({"type": "object"})", {"{}", R"({"x": [1, {"y": {}}]})"}, {"[]", "{1:2}", R"({"x"})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a":1,"b":2})"},
       {R"({"a":"1"})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"1", "\"1\""}, {"true"}},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties":
           {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/tree"},
           {"type": "null"}]}}, "required": ["v", "next"]}}})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {"{}", {"1", "[]", R"({"a":[true]})"}, {"", "a"}},
      {"true", {"1"}, {""}},
  };
  for (const SchemaCase& c : cases) {
    GrammarStates g = of(c.schema);
    for (const char* text : c.fits) EXPECT_TRUE(takes(g, text)) << c.schema << "\n" << text;
    for (const char* text : c.does_not) EXPECT_FALSE(takes(g, text)) << c.schema << "\n" << text;
  }
}

TEST(JsonGrammar, RefusesWhatItDoesNotUnderstand) {
  const auto refused = [](const char* schema, const char* part) {
    try {
      of(schema);
      ADD_FAILURE() << schema;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << schema << "\n" << e.what();
    }
  };
  refused(R"({"type": "string", "pattern": "a+"})", "'pattern'");
  refused(R"({"type": "integer", "minimum": 3})", "'minimum'");
  refused(R"({"type": "magic"})", "magic");
  refused(R"({"type": "integer", "properties": {}})", "'properties'");
  refused(R"({"properties": {"a": {"type": "array", "items": {"not": {}}}}, "type": "object"})",
          "#/properties/a/items");
  refused(R"({"type": "object", "required": ["x"]})", "'x'");
  refused(R"({"$ref": "http://example.org"})", "$ref");
  refused(R"({"$ref": "#/nowhere"})", "nowhere");
  refused(R"({"enum": []})", "enum");
  refused(R"({"anyOf": []})", "anyOf");
  refused(R"({"$ref": "#"})", "nothing fits");
  refused(R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})", "nothing fits");
  refused(R"({"type": "string", "maxLength": 99999999})", "4096");
  refused(R"({"type": "array", "minItems": 3, "maxItems": 2})", "at least");
  refused("false", "false");
  refused("[]", "object");
  refused("5", "object");
}

// A walk that takes any byte that may come, and ends where it may: JSON, always.
TEST(JsonGrammar, RandomWalksAreJson) {
  const char* const schema =
      R"({"type": "object", "properties": {"s": {"type": "string", "maxLength": 4},
          "n": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
          "o": {"type": "object", "properties": {"b": {"enum": ["x", "xy", 1]}}, "required": ["b"]},
          "m": {"type": ["boolean", "null"]}}, "required": ["n", "m"]})";
  GrammarStates g = of(schema);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::string text;
    GrammarStates::State s = g.start();
    for (uint64_t i = 0; !g.complete(s); ++i) {
      std::vector<uint8_t> may;
      for (int b = 0; b < 256; ++b) {
        if (g.next(s, uint8_t(b)) != GrammarStates::kDead) may.push_back(uint8_t(b));
      }
      ASSERT_FALSE(may.empty()) << text;  // no way leads into a corner
      const uint8_t b = may[philox(seed, 3, i)[0] % may.size()];
      text += char(b);
      s = g.next(s, b);
    }
    const Json j = parse_json_or_discard<Json>(text);
    ASSERT_TRUE(j.is_object()) << text;
    EXPECT_TRUE(j.contains("n") && j.contains("m")) << text;
  }
  EXPECT_LT(g.count(), 2000u);
}

TEST(JsonGrammar, DeepNestingEnds) {
  GrammarStates g(any_json_object());
  GrammarStates::State s = g.start();
  const std::string deep = R"({"a":)";
  int64_t levels = 0;
  for (; s != GrammarStates::kDead && levels < 2000; ++levels) {
    for (const char c : deep) s = g.next(s, uint8_t(c));
  }
  EXPECT_GT(levels, 50);
  EXPECT_LT(levels, 300);
}

TEST(JsonGrammar, MasksAreThoseOfTheBytes) {
  const Tokenizer tokenizer =
      Tokenizer::load(std::string(kSourceDir) + "/models/mini/tokenizer.json");
  const auto words = std::make_shared<SortedVocabulary>(tokenizer);
  const Json schema = parse_json<Json>(
      R"({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}})");
  TokenMasks masks(words, json_schema_grammar(schema), {*tokenizer.im_end()});
  GrammarStates states(json_schema_grammar(schema));
  GrammarStates::State at = states.start();
  const size_t V = size_t(tokenizer.vocab_size()) + 5;
  for (const int32_t id : tokenizer.encode(R"({"name": "你好 Ann", "n": 42})")) {
    std::vector<float> logits(V, 1.f);
    masks.apply(logits);
    for (int32_t t = 0; t < int32_t(V); ++t) {
      bool may = t < tokenizer.vocab_size() && !tokenizer.is_special(t);
      GrammarStates::State s = at;
      if (may) {
        for (const char c : tokenizer.token_bytes(t)) s = states.next(s, uint8_t(c));
        may = s != GrammarStates::kDead && !tokenizer.token_bytes(t).empty();
      }
      ASSERT_EQ(logits[size_t(t)] == 1.f, may) << tokenizer.token_text(t);
    }
    masks.take(id);
    for (const char c : tokenizer.token_bytes(id)) at = states.next(at, uint8_t(c));
  }
  EXPECT_TRUE(masks.complete());
  std::vector<float> logits(V, 1.f);
  masks.apply(logits);
  for (size_t t = 0; t < V; ++t) EXPECT_EQ(logits[t] == 1.f, int32_t(t) == *tokenizer.im_end());
}

}  // namespace
}  // namespace nibble::test
