// SPDX-License-Identifier: MIT
#include "grammar/grammar_states.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace nibble {

GrammarStates::GrammarStates(ByteGrammar grammar) : grammar_(std::move(grammar)) {
  Stacks seen, first;
  const auto& ways = grammar_.alternatives(grammar_.start);
  for (size_t a = 0; a < ways.size(); ++a) {
    Stack stack;
    if (!ways[a].empty()) stack.push_back({grammar_.start, int32_t(a), 0});
    expand(std::move(stack), seen, first);
  }
  if (first.empty()) throw_usage("the schema is one that nothing fits");
  start_ = intern(std::move(first));
}

const ByteGrammar::Symbol& GrammarStates::symbol(const Place& p) const {
  return grammar_.alternatives(p.rule)[size_t(p.alternative)][size_t(p.symbol)];
}

void GrammarStates::step_over(Stack& stack) const {
  Place& top = stack.back();
  const size_t length = grammar_.alternatives(top.rule)[size_t(top.alternative)].size();
  if (size_t(++top.symbol) == length) stack.pop_back();
}

void GrammarStates::expand(Stack first, Stacks& seen, Stacks& out) const {
  std::vector<Stack> todo;
  todo.push_back(std::move(first));
  while (!todo.empty()) {
    Stack stack = std::move(todo.back());
    todo.pop_back();
    if (stack.size() > kDeepest || !seen.insert(stack).second) continue;
    if (seen.size() > 4 * kMostStacks) throw_usage("the schema has too many ways to go on");
    if (stack.empty() || symbol(stack.back()).rule < 0) {
      out.insert(std::move(stack));
      continue;
    }
    const ByteGrammar::Rule rule = symbol(stack.back()).rule;
    step_over(stack);  // what comes behind the rule; nothing where it stood last
    const auto& ways = grammar_.alternatives(rule);
    for (size_t a = 0; a < ways.size(); ++a) {
      Stack way = stack;
      if (!ways[a].empty()) way.push_back({rule, int32_t(a), 0});
      todo.push_back(std::move(way));
    }
  }
}

GrammarStates::State GrammarStates::intern(Stacks stacks) {
  if (stacks.empty()) return kDead;
  if (stacks.size() > kMostStacks) throw_usage("the schema has too many ways to go on");
  const auto [at, is_new] = ids_.try_emplace(std::move(stacks), State(states_.size()));
  if (is_new) {
    if (states_.size() >= kMostStates) throw_usage("the schema has too many states");
    states_.push_back({&at->first, at->first.contains(Stack()), nullptr});
  }
  return at->second;
}

GrammarStates::State GrammarStates::next(State state, uint8_t byte) {
  if (state == kDead) return kDead;
  auto& table = states_[size_t(state)].next;
  if (!table) {
    table = std::make_unique<std::array<State, 256>>();
    table->fill(kUnknown);
  }
  if ((*table)[byte] != kUnknown) return (*table)[byte];
  Stacks seen, out;
  for (const Stack& stack : *states_[size_t(state)].stacks) {
    if (stack.empty() || !symbol(stack.back()).bytes.test(byte)) continue;
    Stack on = stack;
    step_over(on);
    expand(std::move(on), seen, out);
  }
  const State to = intern(std::move(out));  // may move states_
  (*states_[size_t(state)].next)[byte] = to;
  return to;
}

}  // namespace nibble
