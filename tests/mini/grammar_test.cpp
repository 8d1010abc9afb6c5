// SPDX-License-Identifier: MIT
#include "mini/grammar.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/records.h"
#include "tokenizer/unicode.h"

namespace nibble {
namespace {

TEST(Grammar, DrawsDependOnSeedStreamAndIndexAlone) {
  Draw a(1, 2, 3), b(1, 2, 3), other(1, 2, 4);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint32_t w = a.word();
    EXPECT_EQ(w, b.word());
    differs |= w != other.word();
  }
  EXPECT_TRUE(differs);
  // The bytes of every data set depend on these: a change here is a change of all of them.
  Draw fixed(20260226, 1, 0);
  std::vector<uint32_t> drawn;
  for (int i = 0; i < 5; ++i) drawn.push_back(fixed.below(1000000));  // 5: into the second block
  EXPECT_EQ(drawn, (std::vector<uint32_t>{914313, 25303, 948105, 951251, 777651}));
  EXPECT_EQ(shuffled(8, fixed), (std::vector<uint32_t>{7, 0, 2, 4, 6, 1, 3, 5}));
}

TEST(Grammar, RefusesWhatItDoesNotKnow) {
  Grammar g;
  EXPECT_THROW(parse_grammar(g, "= a zh none\n"), InternalError);
  EXPECT_THROW(parse_grammar(g, "# t a b\nonly one\n"), InternalError);
  EXPECT_THROW(parse_grammar(g, "= a zh none - 1 shiny\n"), InternalError);
  EXPECT_THROW(parse_grammar(g, "= a zh none - 1\n% what\n"), InternalError);
}

// Every intent can be said in both splits where it is probed, and every text is sound.
TEST(Grammar, EveryIntentMakesDialogues) {
  const Grammar& g = grammar();
  ASSERT_GT(g.intents.size(), 100u);
  for (const Intent& intent : g.intents) {
    for (const Split split : {Split::train, Split::held_out}) {
      if (split == Split::held_out && intent.probes == 0) continue;
      Draw draw(7, 8, 9);
      for (int i = 0; i < 50; ++i) {
        const Row row = g.values(intent, split, draw);
        const Dialogue d = make_dialogue(g, intent, split, row, draw);
        ASSERT_GE(d.turns.size(), 2u) << intent.id;
        ASSERT_EQ(d.turns.size() % 2, 0u) << intent.id;
        for (const std::string& t : d.turns) {
          EXPECT_FALSE(t.empty()) << intent.id;
          EXPECT_EQ(t.find_first_of("{}[]|\t\n"), t.npos) << intent.id << ": " << t;
          EXPECT_EQ(valid_utf8_prefix(t), t.size());
        }
        // The model's own reply passes its probes.
        for (const std::string& c : intent.checks) {
          EXPECT_NE(d.turns.back().find(expand(c, row, draw)), std::string::npos)
              << intent.id << ": " << d.turns.back();
        }
        if (!intent.equals.empty()) {
          EXPECT_EQ(d.turns.back(), expand(intent.equals, row, draw));
        }
      }
    }
  }
}

TEST(Grammar, AWalkMeetsEveryChoiceOnce) {
  std::multiset<std::string> seen;
  for (Walk walk; walk.next();) {
    Draw draw(walk);
    seen.insert(expand("[a|b[1|2|]|{x}]-[c|d]", {{"x", "e"}}, draw));
  }
  EXPECT_EQ(seen, (std::multiset<std::string>{"a-c", "a-d", "b1-c", "b1-d", "b2-c", "b2-d", "b-c",
                                              "b-d", "e-c", "e-d"}));
}

// As they are written. What is the same but for quotation marks or polite words, or is a training
// phrasing of another intent, make_probes leaves out: see TrainingSays and Probes.
TEST(Grammar, HeldOutPhrasingsAreNotTrainingPhrasings) {
  for (const Intent& intent : grammar().intents) {
    std::set<std::string> train;
    for (const Phrasing& p : intent.phrasings) {
      if (p.split == Split::train) train.insert(p.text);
    }
    for (const Phrasing& p : intent.phrasings) {
      EXPECT_FALSE(p.split == Split::held_out && train.contains(p.text)) << p.text;
    }
  }
}

// Values of tasks: what one split has, the other has not.
TEST(Grammar, GeneratedValuesOfTheSplitsAreDisjoint) {
  const Grammar& g = grammar();
  int keyed = 0;
  for (const Intent& intent : g.intents) {
    const NamedGenerator* generator = find_generator(intent.source);
    if (!generator) continue;
    std::set<std::string> keys[2];
    Draw draw(1, 1, 1);
    for (const Split split : {Split::train, Split::held_out}) {
      for (int i = 0; i < 200; ++i) {
        const std::string key = generator->key(g.values(intent, split, draw));
        if (!key.empty()) keys[int(split)].insert(key);
      }
    }
    keyed += keys[1].empty() ? 0 : 1;
    for (const std::string& k : keys[1]) EXPECT_FALSE(keys[0].contains(k)) << k;
  }
  EXPECT_GE(keyed, 16);
}

TEST(Grammar, AboutOneValueInTenIsHeldOut) {
  int held_out = 0;
  for (int i = 0; i < 10000; ++i) held_out += is_held_out("key " + std::to_string(i)) ? 1 : 0;
  EXPECT_NEAR(held_out, 1000, 150);  // five standard deviations
}

TEST(Grammar, SumsAreRight) {
  const Grammar& g = grammar();
  Draw draw(3, 3, 3);
  for (int i = 0; i < 500; ++i) {
    const Row a = g.values(g.find("add", Language::zh), Split::train, draw);
    EXPECT_EQ(std::stoi(a.at("a")) + std::stoi(a.at("b")), std::stoi(a.at("c")));
    const Row s = g.values(g.find("sub", Language::zh), Split::held_out, draw);
    EXPECT_EQ(std::stoi(s.at("a")) - std::stoi(s.at("b")), std::stoi(s.at("c")));
    EXPECT_GE(std::stoi(s.at("c")), 0);
  }
}

TEST(Records, NormalisedKeepsLettersDigitsAndSigns) {
  EXPECT_EQ(normalised("你是誰？"), normalised("你是誰"));
  EXPECT_EQ(normalised("Who ARE you?!"), "who are you");
  EXPECT_NE(normalised("3+2"), normalised("3-2"));
  EXPECT_NE(normalised("1 2"), normalised("12"));
  EXPECT_EQ(normalised("，。？"), "");
  EXPECT_EQ(normalised("「wind」的中文"), normalised("wind 的中文"));
  EXPECT_EQ(normalised("他說 \u201cwind\u201d 嗎"), "他說wind嗎");
  EXPECT_EQ(normalised("what is \"it\""), "what is it");
  EXPECT_EQ(normalised("3 + 2"), normalised("3+2"));
  EXPECT_EQ(normalised("caf\u00e9 au lait"), "caf\u00e9 au lait");
  EXPECT_EQ(normalised(" a \n b "), "a\nb");
  EXPECT_EQ(normalised("wind 的 中文", KeyRule::drawn), "wind 的中文");
}

}  // namespace
}  // namespace nibble
