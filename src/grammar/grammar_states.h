// SPDX-License-Identifier: MIT
// Where a text may be in a grammar. A state is the set of all stacks of what is still to come;
// states and the bytes between them are made as they are met, so that a byte met again costs a look
// into a table.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "grammar/byte_grammar.h"

namespace nibble {

class GrammarStates {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;  // no text goes on from here

  // UsageError for a grammar that no text follows.
  explicit GrammarStates(ByteGrammar grammar);

  State start() const { return start_; }
  State next(State state, uint8_t byte);
  bool complete(State state) const { return states_[size_t(state)].complete; }
  size_t count() const { return states_.size(); }

  // Nesting beyond it matches nothing; more states or stacks than these are a UsageError.
  static constexpr size_t kDeepest = 256, kMostStates = 20000, kMostStacks = 4096;

 private:
  // Places in the grammar, the next one last: rule, alternative, symbol.
  struct Place {
    int32_t rule, alternative, symbol;
    auto operator<=>(const Place&) const = default;
  };
  using Stack = std::vector<Place>;
  using Stacks = std::set<Stack>;
  static constexpr State kUnknown = -2;
  struct Known {
    const Stacks* stacks = nullptr;
    bool complete = false;
    std::unique_ptr<std::array<State, 256>> next;
  };

  const ByteGrammar::Symbol& symbol(const Place& p) const;
  // With all ways to a byte at the top; the empty stack is the end.
  void expand(Stack stack, Stacks& seen, Stacks& out) const;
  void step_over(Stack& stack) const;
  State intern(Stacks stacks);

  ByteGrammar grammar_;
  std::map<Stacks, State> ids_;
  std::vector<Known> states_;
  State start_;
};

}  // namespace nibble
