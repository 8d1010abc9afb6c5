// SPDX-License-Identifier: MIT
#include "grammar/json_values.h"

#include "core/error.h"
#include "core/json.h"

namespace nibble {
namespace {

using G = ByteGrammar;

constexpr int64_t kMostRepeats = 4096;

G::Sequence operator+(G::Sequence a, const G::Sequence& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

std::string json_spelling(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

JsonValues::JsonValues(ByteGrammar& grammar) : g_(grammar) {
  // Without end, blanks are what a model that knows no better writes for ever.
  G::Rule indent = g_.add_rule({{}});
  for (int i = 0; i < 20; ++i) indent = g_.add_rule({{}, {G::byte(' '), G::ref(indent)}});
  space_ = g_.add_rule({{}, {G::byte(' ')}, {G::byte('\n'), G::ref(indent)}});
  character_ = character();
  string_ = string_of(0, -1);

  const Rule sign = g_.add_rule({{}, {G::byte('-')}});
  const Rule whole = g_.add_rule({{G::byte('0')}, {G::range('1', '9'), G::ref(digits(0, 15))}});
  integer_ = g_.add_rule({{G::ref(sign), G::ref(whole)}});
  const Rule fraction = g_.add_rule({{}, {G::byte('.'), G::ref(digits(1, 16))}});
  const Rule plus_minus = g_.add_rule({{}, {G::any_of("+-")}});
  const Rule exponent =
      g_.add_rule({{}, {G::any_of("eE"), G::ref(plus_minus), G::ref(digits(1, 2))}});
  number_ = g_.add_rule({{G::ref(integer_), G::ref(fraction), G::ref(exponent)}});

  any_ = g_.add_rule();
  object_ = map_of(any_);
  array_ = array_of(any_, 0, -1);
  for (const Rule r : {object_, array_, string_, number_}) g_.add(any_, {G::ref(r)});
  for (const char* word : {"true", "false", "null"}) g_.add(any_, G::text(word));
}

// One character of a string: UTF-8 without what JSON wants escaped, or an escape.
JsonValues::Rule JsonValues::character() {
  const auto more = G::range(0x80, 0xbf);
  G::Symbol plain = G::range(0x20, 0x7f);
  plain.bytes.reset('"');
  plain.bytes.reset('\\');
  G::Symbol hex = G::any_of("0123456789abcdefABCDEF");
  return g_.add_rule({
      {plain},
      {G::range(0xc2, 0xdf), more},
      {G::range(0xe0, 0xe0), G::range(0xa0, 0xbf), more},
      {G::range(0xe1, 0xec), more, more},
      {G::range(0xed, 0xed), G::range(0x80, 0x9f), more},
      {G::range(0xee, 0xef), more, more},
      {G::range(0xf0, 0xf0), G::range(0x90, 0xbf), more, more},
      {G::range(0xf1, 0xf3), more, more, more},
      {G::range(0xf4, 0xf4), G::range(0x80, 0x8f), more, more},
      {G::byte('\\'), G::any_of("\"\\/bfnrt")},
      // Not D800 .. DFFF, of which only pairs are characters.
      {G::byte('\\'), G::byte('u'), G::any_of("0123456789abcefABCEF"), hex, hex, hex},
      {G::byte('\\'), G::byte('u'), G::any_of("dD"), G::range('0', '7'), hex, hex},
  });
}

JsonValues::Rule JsonValues::digits(int least, int most) {
  Rule r = g_.add_rule({{}});
  for (int i = most; i > 0; --i) {
    const Rule next = g_.add_rule({{G::range('0', '9'), G::ref(r)}});
    if (i > least) g_.add(next, {});
    r = next;
  }
  return r;
}

JsonValues::Rule JsonValues::string_of(int64_t least, int64_t most) {
  if (least > kMostRepeats || most > kMostRepeats)
    throw_usage("a limit of over {} characters is not kept here", kMostRepeats);
  Rule rest = g_.add_rule({{G::byte('"')}});
  if (most < 0) {
    g_.add(rest, {G::ref(character_), G::ref(rest)});
    most = least;
  }
  for (int64_t i = most; i > 0; --i) {
    const Rule next = g_.add_rule({{G::ref(character_), G::ref(rest)}});
    if (i > least) g_.add(next, {G::byte('"')});
    rest = next;
  }
  return g_.add_rule({{G::byte('"'), G::ref(rest)}});
}

JsonValues::Rule JsonValues::array_of(Rule item, int64_t least, int64_t most) {
  if (least > kMostRepeats || most > kMostRepeats)
    throw_usage("a limit of over {} items is not kept here", kMostRepeats);
  if (most >= 0 && most < least) return g_.add_rule();
  const Sequence close = {G::ref(space_), G::byte(']')};
  const Sequence comma = {G::ref(space_), G::byte(','), G::ref(space_), G::ref(item)};
  // rest: behind an item.
  Rule rest = g_.add_rule({close});
  int64_t bounded = most;
  if (most < 0) {
    g_.add(rest, comma + Sequence{G::ref(rest)});
    bounded = std::max<int64_t>(1, least);
  }
  for (int64_t i = bounded; i > 1; --i) {
    const Rule next = g_.add_rule({comma + Sequence{G::ref(rest)}});
    if (i > least) g_.add(next, close);
    rest = next;
  }
  const Rule array = g_.add_rule();
  const Sequence open = {G::byte('['), G::ref(space_)};
  if (most != 0) g_.add(array, open + Sequence{G::ref(item), G::ref(rest)});
  if (least == 0) g_.add(array, open + Sequence{G::byte(']')});
  return array;
}

JsonValues::Rule JsonValues::key_of(std::string_view name) {
  return g_.add_rule(
      {G::text(json_spelling(name)) + Sequence{G::ref(space_), G::byte(':'), G::ref(space_)}});
}

JsonValues::Rule JsonValues::map_of(Rule value) {
  const Rule pair =
      g_.add_rule({{G::ref(string_), G::ref(space_), G::byte(':'), G::ref(space_), G::ref(value)}});
  const Rule rest = g_.add_rule({{G::ref(space_), G::byte('}')}});
  g_.add(rest, {G::ref(space_), G::byte(','), G::ref(space_), G::ref(pair), G::ref(rest)});
  return g_.add_rule({{G::byte('{'), G::ref(space_), G::byte('}')},
                      {G::byte('{'), G::ref(space_), G::ref(pair), G::ref(rest)}});
}

}  // namespace nibble
