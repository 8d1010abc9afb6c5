// SPDX-License-Identifier: MIT
// A context-free grammar over bytes: rules are alternatives, alternatives are sequences of byte
// classes and rules. No rule comes back to itself without a byte in between, except as its own end.
#pragma once
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

namespace nibble {

using ByteClass = std::bitset<256>;

class ByteGrammar {
 public:
  using Rule = int32_t;
  struct Symbol {
    Rule rule = -1;  // or, below 0, a byte of `bytes`
    ByteClass bytes;
  };
  using Sequence = std::vector<Symbol>;

  Rule add_rule();  // without alternatives: matches nothing
  void add(Rule rule, Sequence alternative);
  Rule add_rule(std::vector<Sequence> alternatives);

  static Symbol byte(char c);
  static Symbol range(int first, int last);
  static Symbol any_of(std::string_view bytes);
  static Symbol ref(Rule rule) { return {rule, {}}; }
  static Sequence text(std::string_view literal);

  const std::vector<Sequence>& alternatives(Rule rule) const { return rules_[size_t(rule)]; }
  size_t rules() const { return rules_.size(); }
  Rule start = 0;

  // UsageError beyond it: a schema that grows so large is not meant.
  static constexpr size_t kMostSymbols = 200000;

 private:
  std::vector<std::vector<Sequence>> rules_;
  size_t symbols_ = 0;
};

}  // namespace nibble
