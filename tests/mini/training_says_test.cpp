// SPDX-License-Identifier: MIT
#include "mini/training_says.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

// Two intents of which the second has nothing in training that looks like its own phrasing.
Grammar small_grammar() {
  Grammar g;
  parse_grammar(g, R"(# weather en zh
wind|風
rain|雨
= word en retention weather 1
+ what is {en} in Chinese
* say {en}
+ I am {en}. // Hello! // who am I
- what is "{en}" in Chinese
> {zh}
= other en retention - 1
+ how are you
- say wind
> fine
)");
  return g;
}

struct Says : testing::Test {
  Grammar g = small_grammar();
  TrainingSays training{g};
  Question question(std::vector<std::string> turns, std::vector<std::string> pattern = {}) const {
    return {&g.intents[0], g.tables.at("weather").rows[0], std::move(turns), std::move(pattern)};
  }
  bool prompt(std::vector<std::string> turns) const {
    return training.has_prompt(question(std::move(turns)));
  }
  // `{}` stands for any value.
  bool pattern(std::string text) const {
    const std::string any = without_values({{"x", "y"}}).at("x");
    for (size_t at; (at = text.find("{}")) != text.npos;) text.replace(at, 2, any);
    return training.has_pattern(question({"-"}, {text}));
  }
};

TEST_F(Says, PromptsAlikeButForMarksCaseAndPoliteWords) {
  EXPECT_TRUE(prompt({"What is \"wind\" in Chinese?"}));
  EXPECT_TRUE(prompt({"Excuse me, what is rain in chinese"}));  // a word of the table
  EXPECT_TRUE(prompt({"could you say wind, please."}));
  EXPECT_FALSE(prompt({"what is snow in Chinese?"}));
  EXPECT_FALSE(prompt({"what is the wind in Chinese?"}));
  EXPECT_FALSE(prompt({"hello, excuse me, how are you"}));  // words only probes have
}

TEST_F(Says, EveryStretchOfTurnsIsAPrompt) {
  EXPECT_TRUE(prompt({"I am wind.", "who am I?"}));
  EXPECT_TRUE(prompt({"who am I?"}));
  EXPECT_TRUE(prompt({"I am wind"}));
  EXPECT_FALSE(prompt({"I am wind.", "how are you?"}));
}

TEST_F(Says, PatternsOfAnyIntent) {
  EXPECT_TRUE(pattern("what is \"{}\" in Chinese"));
  EXPECT_TRUE(pattern("hey, what is {} in Chinese?"));
  EXPECT_TRUE(pattern("How are you"));
  EXPECT_FALSE(pattern("what is the word {} in Chinese"));
}

// The generated values are the question's own: what training would say of held-out ones counts.
TEST(TrainingSays, OwnValuesCount) {
  const Grammar& g = grammar();
  const TrainingSays training(g);
  const Intent& add = g.find("add", Language::en);
  Draw draw(1, 1, 1);
  const Row row = g.values(add, Split::held_out, draw);
  const std::string sum = row.at("a") + "+" + row.at("b");
  EXPECT_TRUE(training.has_prompt({&add, row, {"What is " + sum + "?"}, {}}));
  EXPECT_FALSE(training.has_prompt({&add, row, {"What do you get for " + sum + "?"}, {}}));
}

}  // namespace
}  // namespace nibble
