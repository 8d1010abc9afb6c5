// SPDX-License-Identifier: MIT
#include "grammar/byte_grammar.h"

#include <utility>

#include "core/error.h"

namespace nibble {

ByteGrammar::Rule ByteGrammar::add_rule() {
  rules_.emplace_back();
  return Rule(rules_.size() - 1);
}

void ByteGrammar::add(Rule rule, Sequence alternative) {
  symbols_ += alternative.size() + 1;
  if (symbols_ > kMostSymbols)
    throw_usage("the schema is too large: it has over {} parts", kMostSymbols);
  rules_[size_t(rule)].push_back(std::move(alternative));
}

ByteGrammar::Rule ByteGrammar::add_rule(std::vector<Sequence> alternatives) {
  const Rule rule = add_rule();
  for (Sequence& s : alternatives) add(rule, std::move(s));
  return rule;
}

ByteGrammar::Symbol ByteGrammar::byte(char c) { return range(uint8_t(c), uint8_t(c)); }

ByteGrammar::Symbol ByteGrammar::range(int first, int last) {
  Symbol s;
  for (int b = first; b <= last; ++b) s.bytes.set(size_t(b));
  return s;
}

ByteGrammar::Symbol ByteGrammar::any_of(std::string_view bytes) {
  Symbol s;
  for (const char c : bytes) s.bytes.set(uint8_t(c));
  return s;
}

ByteGrammar::Sequence ByteGrammar::text(std::string_view literal) {
  Sequence out;
  for (const char c : literal) out.push_back(byte(c));
  return out;
}

}  // namespace nibble
