// SPDX-License-Identifier: MIT
// {% for %} and what a template knows as `loop`.
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

// Elements that pass `if`, one at a time: the condition may depend on what the body did before.
class FilteredIterator final : public Iterator {
 public:
  FilteredIterator(IteratorPtr from, const Stmt& loop, ScopePtr around)
      : from_(std::move(from)), loop_(loop), around_(std::move(around)) {}

  bool next(Interpreter& in, Value& out) override {
    const Interpreter::Level level(in);
    while (from_->next(in, out)) {
      in.budget().charge(1);
      const Interpreter::WithScope scope(in, std::make_shared<Scope>(around_));
      in.assign(*loop_.target, out);
      if (truth(in.eval(*loop_.test), in)) return true;
    }
    return false;
  }

 private:
  IteratorPtr from_;
  const Stmt& loop_;
  ScopePtr around_;
};

class Loop final : public Object {
 public:
  Loop(const Stmt& statement, IteratorPtr iterator, std::optional<int64_t> length, int depth0)
      : statement_(statement), iterator_(std::move(iterator)), length_(length), depth0_(depth0) {}

  bool advance(Interpreter& in) {
    Value v;
    if (peeked_) {
      if (!after_) return false;
      v = std::move(*after_);
      peeked_ = false;
    } else if (!iterator_->next(in, v)) {
      return false;
    }
    ++index0_;
    before_ = std::move(current_);
    current_ = std::move(v);
    return true;
  }
  const Value& current() const { return current_; }

  std::string type_name() const override { return "LoopContext"; }
  std::string type_path() const override { return "jinja2.runtime.LoopContext"; }
  std::optional<int64_t> length(Interpreter& in) override {
    if (!length_) {
      std::vector<Value> rest;
      for (Value v; iterator_->next(in, v);) {
        in.budget().charge(1);
        rest.push_back(v);
      }
      length_ = int64_t(rest.size()) + index0_ + 1 + (peeked_ && after_ ? 1 : 0);
      iterator_ = vector_iterator(std::move(rest));
    }
    return length_;
  }

  std::optional<Value> attribute(Interpreter& in, std::string_view name) override {
    if (name == "index") return Value(index0_ + 1);
    if (name == "index0") return Value(index0_);
    if (name == "first") return Value(index0_ == 0);
    if (name == "last") return Value(!peek(in));
    if (name == "length") return Value(*length(in));
    if (name == "revindex") return Value(*length(in) - index0_);
    if (name == "revindex0") return Value(*length(in) - index0_ - 1);
    if (name == "depth") return Value(int64_t(depth0_) + 1);
    if (name == "depth0") return Value(int64_t(depth0_));
    if (name == "previtem") {
      return index0_ == 0 ? undefined("there is no previous item") : before_;
    }
    if (name == "nextitem") return peek(in) ? *after_ : undefined("there is no next item");
    // Bound to the loop's place, not to the loop: a loop is never kept by what it hands out.
    if (name == "cycle") {
      const int64_t i = index0_;
      return function([i](Interpreter&, Args args) {
        if (args.positional.empty()) raise("TypeError", "no items for cycling given");
        return args.positional[size_t(i) % args.positional.size()];
      });
    }
    if (name == "changed") {
      const auto last = last_changed_;
      return function([last](Interpreter& in, Args args) -> Value {
        const Value v = make_list(std::move(args.positional), in.budget(), true);
        const bool changed = !*last || !equal(**last, v, in.budget());
        if (changed) *last = v;
        return changed;
      });
    }
    return std::nullopt;
  }

  bool callable() const override { return true; }
  Value call(Interpreter& in, Args args) override {
    if (!statement_.recursive) {
      raise("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    }
    const Params p("loop", args, {"iterable"}, 1);
    const Interpreter::WithScope scope(in, around_.lock());
    return in.captured([&] { in.run_loop(statement_, *p[0], depth0_ + 1); });
  }
  void set_around(const ScopePtr& scope) { around_ = scope; }

 private:
  static Value function(Function::Body body) {
    return ObjectPtr(std::make_shared<Function>("method", std::move(body)));
  }
  bool peek(Interpreter& in) {
    if (!peeked_) {
      Value v;
      after_.reset();
      if (iterator_->next(in, v)) after_ = std::move(v);
      peeked_ = true;
    }
    return after_.has_value();
  }

  const Stmt& statement_;
  IteratorPtr iterator_;
  std::optional<int64_t> length_;
  int depth0_;
  int64_t index0_ = -1;
  Value before_, current_;
  bool peeked_ = false;
  std::optional<Value> after_;
  std::shared_ptr<std::optional<Value>> last_changed_ = std::make_shared<std::optional<Value>>();
  std::weak_ptr<Scope> around_;
};

}  // namespace

Interpreter::Flow Interpreter::run_loop(const Stmt& s, const Value& over, int depth0) {
  const Level level(*this);
  IteratorPtr it = iterate(*this, over);
  std::optional<int64_t> known;
  if (s.test) {
    it = std::make_shared<FilteredIterator>(std::move(it), s, scope_);
  } else if (!over.object() || over.object()->length(*this)) {
    known = length(*this, over);
  }
  const auto loop = std::make_shared<Loop>(s, std::move(it), known, depth0);
  loop->set_around(scope_);
  const Symbol loop_name = tree_.symbols.find("loop");
  bool any = false;
  ScopePtr turn;
  while (loop->advance(*this)) {
    any = true;
    budget_.charge(1);
    // A turn's scope is used again unless a macro has kept it.
    if (turn && turn.use_count() == 1) {
      turn->clear();
    } else {
      turn = std::make_shared<Scope>(scope_);
    }
    const WithScope inner(*this, turn);
    if (loop_name >= 0) turn->set(loop_name, ObjectPtr(loop));
    assign(*s.target, loop->current());
    if (run(s.body) == Flow::break_loop) break;
  }
  if (any) return Flow::normal;
  const WithScope inner(*this, std::make_shared<Scope>(scope_));
  return run(s.other);
}

}  // namespace nibble::jinja
