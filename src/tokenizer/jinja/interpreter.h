// SPDX-License-Identifier: MIT
// Runs the tree of a template. expressions.cpp evaluates, statements.cpp executes, loop.cpp and
// macro.cpp have what is called loop and macro; attributes.cpp says what a.b and a[b] are.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/budget.h"
#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

// The variables of a loop's turn, a macro's call, or the template. Few: looked through in order.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent(std::move(parent)) {}
  const Value* find(Symbol s) const {
    for (const auto& [name, v] : vars_) {
      if (name == s) return &v;
    }
    return nullptr;
  }
  void set(Symbol s, Value v) {
    for (auto& [name, old] : vars_) {
      if (name == s) {
        old = std::move(v);
        return;
      }
    }
    vars_.emplace_back(s, std::move(v));
  }
  void clear() { vars_.clear(); }
  std::shared_ptr<Scope> parent;

 private:
  std::vector<std::pair<Symbol, Value>> vars_;
};
using ScopePtr = std::shared_ptr<Scope>;

class Namespace;

class Interpreter {
 public:
  Interpreter(const Tree& tree, Budget& budget, std::tm now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(std::string_view name, Value v);
  Text render();
  Position at() const { return at_; }  // the last thing that was begun

  // For filters, methods and loops.
  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  const Symbols& symbols() const { return tree_.symbols; }
  Value eval(const Expr& e);
  Value member(const Value& of, const Value& name);  // of.name
  Value item(const Value& of, const Value& key);     // of[key]
  Value call(const Value& function, Args args);
  Value apply_filter(const std::string& name, const Value& input, Args args);
  bool apply_test(const std::string& name, const Value& input, Args args);
  Text text_of(const Value& v);  // str(v)

  // For loops and macros.
  enum class Flow { normal, break_loop, continue_loop };
  Flow run(const Body& body);
  void assign(const Expr& target, const Value& v);
  Text run_macro(const MacroParts& parts, const ScopePtr& around,
                 const std::function<void(Scope&)>& bind);
  Text captured(const std::function<void()>& body);
  Flow run_loop(const Stmt& s, const Value& over, int depth0);
  ScopePtr scope() const { return scope_; }
  // Objects that may be part of a circle are taken apart when the rendering ends.
  void keep(std::shared_ptr<Namespace> ns);
  void keep(ScopePtr scope);

  class WithScope;
  struct Level;  // levels.h

 private:
  Value look_up(const Expr& name);
  Value eval_call(const Expr& e);
  const Value& eval_in_place(const Expr& e, Value& storage);
  Value eval_compare(const Expr& e);
  Value eval_sum(const Expr& e);
  Value eval_slice(const Expr& e);
  Args eval_args(const CallArgs& args);
  Value eval_filter(const Expr& e, const Value* input);
  Flow run(const Stmt& s);

  const Tree& tree_;
  Budget& budget_;
  std::tm now_;
  ScopePtr scope_;
  std::vector<std::optional<Value>> globals_;  // by symbol: what the caller gave
  TextBuilder* out_ = nullptr;
  Position at_;
  int depth_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> kept_scopes_;
};

// Puts a scope in place for as long as it lives.
class Interpreter::WithScope {
 public:
  WithScope(Interpreter& in, ScopePtr scope) : in_(in), outer_(std::exchange(in.scope_, scope)) {}
  ~WithScope() { in_.scope_ = std::move(outer_); }
  WithScope(const WithScope&) = delete;
  WithScope& operator=(const WithScope&) = delete;

 private:
  Interpreter& in_;
  ScopePtr outer_;
};

// namespace(a=1): the one thing whose members a template may set.
class Namespace final : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::string type_path() const override { return "jinja2.utils.Namespace"; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override;
  std::string repr(Interpreter& in) const override;
  void set(std::string_view name, Value v);
  void clear() { members_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

// A function of ours as a value.
class Function final : public Object {
 public:
  using Body = std::function<Value(Interpreter&, Args)>;
  Function(std::string type, Body body) : type_(std::move(type)), body_(std::move(body)) {}
  std::string type_name() const override { return type_; }
  bool callable() const override { return true; }
  Value call(Interpreter& in, Args args) override { return body_(in, std::move(args)); }

 private:
  std::string type_;
  Body body_;
};

// A macro, or the caller of a call block (then without a name). (macro.cpp)
Value make_macro(Interpreter& in, std::shared_ptr<MacroParts> parts);

}  // namespace nibble::jinja
