// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {

Interpreter::Interpreter(const Tree& tree, Budget& budget, std::tm now)
    : tree_(tree),
      budget_(budget),
      now_(now),
      scope_(std::make_shared<Scope>(nullptr)),
      globals_(tree.symbols.size()) {}

// Macros and namespaces may hold each other in circles, which shared pointers never free.
Interpreter::~Interpreter() {
  for (const auto& ns : namespaces_) ns->clear();
  for (const ScopePtr& s : kept_scopes_) s->clear();
}

void Interpreter::keep(std::shared_ptr<Namespace> ns) { namespaces_.push_back(std::move(ns)); }
void Interpreter::keep(ScopePtr scope) {
  if (kept_scopes_.empty() || kept_scopes_.back() != scope) {
    kept_scopes_.push_back(std::move(scope));
  }
}

void Interpreter::set_variable(std::string_view name, Value v) {
  const Symbol s = tree_.symbols.find(name);
  if (s < 0) return;
  globals_[size_t(s)] = std::move(v);
}

Text Interpreter::render() {
  return captured([&] { run(tree_.body); });
}

Text Interpreter::captured(const std::function<void()>& body) {
  struct Restore {
    TextBuilder*& slot;
    TextBuilder* old;
    ~Restore() { slot = old; }
  };
  TextBuilder mine(budget_);
  const Restore restore{out_, std::exchange(out_, &mine)};
  body();
  return mine.take();
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& s : body) {
    const Flow flow = run(*s);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Stmt& s) {
  const Level level(*this);
  budget_.charge(1);
  at_ = s.at;
  switch (s.kind) {
    case StmtKind::data: out_->add(s.text); break;
    case StmtKind::print: out_->add(text_of(eval(*s.expr))); break;
    case StmtKind::set: assign(*s.target, eval(*s.expr)); break;
    case StmtKind::set_block:
    case StmtKind::filter: {
      Text text;
      {
        const WithScope inner(*this, std::make_shared<Scope>(scope_));
        text = captured([&] { run(s.body); });
      }
      const Value v = s.expr ? eval_filter(*s.expr, std::make_unique<Value>(text).get()) : text;
      if (s.kind == StmtKind::filter) {
        out_->add(text_of(v));
      } else {
        assign(*s.target, v);
      }
      break;
    }
    case StmtKind::condition:
      for (const auto& [test, body] : s.branches) {
        if (!test || truth(eval(*test), *this)) return run(body);
      }
      break;
    case StmtKind::loop: return run_loop(s, eval(*s.expr), 0);
    case StmtKind::macro: scope_->set(s.symbol, make_macro(*this, s.parts)); break;
    case StmtKind::call: {
      const Value f = eval(*s.expr->kids[0]);
      Args args = eval_args(s.expr->args);
      args.named.emplace_back("caller", make_macro(*this, s.parts));
      at_ = s.expr->at;
      out_->add(text_of(call(f, std::move(args))));
      break;
    }
    case StmtKind::with: {
      const auto inner = std::make_shared<Scope>(scope_);
      for (const auto& [target, value] : s.bindings) {
        const Value v = eval(*value);
        const WithScope in_inner(*this, inner);
        assign(*target, v);
      }
      const WithScope in_inner(*this, inner);
      return run(s.body);
    }
    case StmtKind::scope: {
      const WithScope inner(*this, std::make_shared<Scope>(scope_));
      return run(s.body);
    }
    case StmtKind::generation: {
      const size_t from = out_->size();
      out_->add(run_macro(*s.parts, scope_, [](Scope&) {}));
      out_->mark_generated(from);
      break;
    }
    case StmtKind::break_loop: return Flow::break_loop;
    case StmtKind::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

void Interpreter::assign(const Expr& target, const Value& v) {
  if (target.kind == ExprKind::name) {
    scope_->set(target.symbol, v);
    return;
  }
  if (target.kind == ExprKind::ns_target) {
    Expr name{ExprKind::name, target.at};
    name.symbol = target.symbol;
    const Value of = look_up(name);
    auto* ns = dynamic_cast<Namespace*>(of.object());
    if (!ns) {
      raise_at(target.at, "TemplateRuntimeError",
               "cannot assign attribute on non-namespace object");
    }
    ns->set(target.text, v);
    return;
  }
  if (!v.is_undefined() && !v.list() && !v.dict() && !v.text() &&
      !(v.object() && v.object()->iterate(*v.as<ObjectPtr>()))) {
    raise("TypeError", "cannot unpack non-iterable {} object", type_name(v));
  }
  const std::vector<Value> items = to_vector(*this, v);
  if (items.size() < target.kids.size()) {
    raise("ValueError", "not enough values to unpack (expected {}, got {})", target.kids.size(),
          items.size());
  }
  if (items.size() > target.kids.size()) {
    raise("ValueError", "too many values to unpack (expected {})", target.kids.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], items[i]);
}

std::optional<Value> Namespace::attribute(Interpreter&, std::string_view name) {
  for (const auto& [k, v] : members_) {
    if (k == name) return v;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value v) {
  for (auto& [k, old] : members_) {
    if (k == name) {
      old = std::move(v);
      return;
    }
  }
  members_.emplace_back(std::string(name), std::move(v));
}

std::string Namespace::repr(Interpreter& in) const {
  std::string out = "<Namespace {";
  for (const auto& [k, v] : members_) {
    out += (out.size() > 12 ? ", " : "") + in_quotes(k) + ": ";
    // A namespace may hold itself.
    out += v.object() ? "<" + jinja::type_name(v) + ">" : std::string(jinja::repr(in, v).view());
  }
  return out + "}>";
}

}  // namespace nibble::jinja
