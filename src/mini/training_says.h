// SPDX-License-Identifier: MIT
// Everything the training phrasings can ask, to tell what is not held out although it was meant to
// be. Texts are compared by `normalised`: quotation marks, other punctuation, case and spaces
// beside Chinese make no difference, nor do the polite words training puts around a question.
#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "mini/grammar.h"

namespace nibble {

// What a probe asks, and where it comes from. Turns are the user's alone.
struct Question {
  const Intent* intent;
  Row row;
  std::vector<std::string> turns;
  std::vector<std::string> pattern;  // the turns before values and polite words were put in
};
// The user's turns of a dialogue (whose last is a reply) or of Asked::turns.
std::vector<std::string> user_turns(const std::vector<std::string>& turns);
// The same names with a mark in place of each value.
Row without_values(const Row& row);

class TrainingSays {
 public:
  explicit TrainingSays(const Grammar& grammar);
  // The pattern is that of a training phrasing, of whatever intent.
  bool has_pattern(const Question& question) const;
  // A training phrasing makes the very question: with the values of a table or another list, or
  // with the question's own.
  bool has_prompt(const Question& question) const;

 private:
  using Keys = std::unordered_set<std::string>;
  void add(const Intent& intent, const Row& row, Keys& keys) const;
  const Grammar& grammar_;
  Keys patterns_, prompts_;
};

}  // namespace nibble
