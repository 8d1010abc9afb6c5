// SPDX-License-Identifier: MIT
// The rules of JSON itself, made once for each grammar.
#pragma once
#include <optional>
#include <string_view>

#include "grammar/byte_grammar.h"

namespace nibble {

class JsonValues {
 public:
  using Rule = ByteGrammar::Rule;
  using Sequence = ByteGrammar::Sequence;

  explicit JsonValues(ByteGrammar& grammar);

  Rule any() const { return any_; }
  Rule object() const { return object_; }  // any
  Rule array() const { return array_; }    // any
  Rule string() const { return string_; }
  Rule number() const { return number_; }
  Rule integer() const { return integer_; }
  Rule space() const { return space_; }
  Rule key_of(std::string_view name);  // "name": with the blanks behind it
  // Between so many characters; most < 0: no limit.
  Rule string_of(int64_t least, int64_t most);
  // item, item, ...: from least to most of them, in brackets.
  Rule array_of(Rule item, int64_t least, int64_t most);
  // {"text": value, ...}
  Rule map_of(Rule value);

 private:
  Rule list(Rule item, Rule rest);
  Rule character();
  Rule digits(int least, int most);

  ByteGrammar& g_;
  Rule space_, character_, string_, integer_, number_, any_, object_, array_;
};

// Text as JSON spells it, quotes included.
std::string json_spelling(std::string_view text);

}  // namespace nibble
