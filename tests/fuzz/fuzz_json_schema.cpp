// SPDX-License-Identifier: MIT
// libFuzzer target: bytes as a JSON schema. A short walk through what it allows leads into no
// corner, and where it may end it is JSON.
#include "core/error.h"
#include "core/json.h"
#include "grammar/grammar_states.h"
#include "grammar/json_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  using Json = nlohmann::ordered_json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Json schema = parse_json_or_discard<Json>(text);
  if (schema.is_discarded()) return 0;
  try {
    GrammarStates g(json_schema_grammar(schema));
    GrammarStates::State s = g.start();
    std::string walk;
    for (size_t i = 0; i < 64 && !g.complete(s); ++i) {
      // The byte that the input chooses, or the next that may come.
      const int first = size > 0 ? data[i % size] : 0;
      GrammarStates::State to = GrammarStates::kDead;
      for (int k = 0; k < 256 && to == GrammarStates::kDead; ++k) {
        const auto b = uint8_t(first + k);
        to = g.next(s, b);
        if (to != GrammarStates::kDead) walk += char(b);
      }
      // A schema that must contain itself for ever has no end, but a way on until it is too deep.
      if (to == GrammarStates::kDead) return 0;
      s = to;
    }
    if (g.complete(s) && parse_json_or_discard<Json>(walk).is_discarded()) __builtin_trap();
  } catch (const UsageError&) {
  }
  return 0;
}
