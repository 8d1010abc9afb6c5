// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {

Value Interpreter::look_up(const Expr& name) {
  for (const Scope* s = scope_.get(); s; s = s->parent.get()) {
    if (const Value* v = s->find(name.symbol)) return *v;
  }
  if (const auto& given = globals_[size_t(name.symbol)]) return *given;
  if (const Value& f = tree_.functions[size_t(name.symbol)]; !f.is_none()) return f;
  return undefined_name(Text::written(tree_.symbols.name(name.symbol)));
}

// A value that is there already, where the expression only names it: no copy is made.
const Value& Interpreter::eval_in_place(const Expr& e, Value& storage) {
  if (e.kind == ExprKind::constant) return e.value;
  if (e.kind == ExprKind::name) {
    for (const Scope* s = scope_.get(); s; s = s->parent.get()) {
      if (const Value* v = s->find(e.symbol)) return *v;
    }
  }
  return storage = eval(e);
}

Value Interpreter::eval(const Expr& e) {
  const Level level(*this);
  budget_.charge(1);
  at_ = e.at;
  switch (e.kind) {
    case ExprKind::constant: return e.value;
    case ExprKind::name: return look_up(e);
    case ExprKind::member: {
      Value storage;
      const Value& of = eval_in_place(*e.kids[0], storage);
      at_ = e.at;
      return member(of, e.value);
    }
    case ExprKind::item: {
      const Value of = eval(*e.kids[0]);
      const Value key = eval(*e.kids[1]);
      at_ = e.at;
      return item(of, key);
    }
    case ExprKind::slice: return eval_slice(e);
    case ExprKind::call: return eval_call(e);
    case ExprKind::filter: return eval_filter(e, nullptr);
    case ExprKind::test: {
      const Value v = eval(*e.kids[0]);
      Args args = eval_args(e.args);
      at_ = e.at;
      return apply_test(e.text, v, std::move(args));
    }
    case ExprKind::list:
    case ExprKind::tuple: {
      std::vector<Value> items;
      for (const ExprPtr& k : e.kids) items.push_back(eval(*k));
      return make_list(std::move(items), budget_, e.kind == ExprKind::tuple);
    }
    case ExprKind::dict: {
      DictBuilder out(budget_);
      for (size_t i = 0; i < e.kids.size(); i += 2) {
        Value key = eval(*e.kids[i]);
        out.set(std::move(key), eval(*e.kids[i + 1]));
      }
      return out.take();
    }
    case ExprKind::unary: {
      const Value v = eval(*e.kids[0]);
      at_ = e.at;
      if (e.text == "not") return !truth(v, *this);
      return unary_operator(e.text[0], v);
    }
    case ExprKind::binary: {
      if (e.text == "+" && e.kids[0]->kind == ExprKind::binary && e.kids[0]->text == "+") {
        return eval_sum(e);
      }
      const Value a = eval(*e.kids[0]);
      const Value b = eval(*e.kids[1]);
      at_ = e.at;
      return binary_operator(*this, e.text, a, b);
    }
    case ExprKind::concat: {
      TextBuilder out(budget_);
      for (const ExprPtr& k : e.kids) out.add(text_of(eval(*k)));
      return out.take();
    }
    case ExprKind::logic: {
      Value a = eval(*e.kids[0]);
      if (truth(a, *this) == (e.text == "or")) return a;
      return eval(*e.kids[1]);
    }
    case ExprKind::compare: return eval_compare(e);
    case ExprKind::condition:
      if (truth(eval(*e.kids[1]), *this)) return eval(*e.kids[0]);
      if (e.kids[2]) return eval(*e.kids[2]);
      return undefined("the inline if-expression on line " + std::to_string(e.at.line) +
                       " evaluated to false and no else section was defined.");
    case ExprKind::ns_target: break;
  }
  raise("RuntimeError", "an expression that is none");
}

// a + b + c + ...: texts are put end to end in one go.
Value Interpreter::eval_sum(const Expr& e) {
  std::vector<const Expr*> sums;  // the outermost first
  const Expr* first = &e;
  for (; first->kind == ExprKind::binary && first->text == "+"; first = first->kids[0].get()) {
    sums.push_back(first);
  }
  Value total = eval(*first);
  const auto plain = [](const Value& v) { return v.text() && !v.text()->markup(); };
  TextBuilder joined(budget_);
  bool joining = plain(total);
  if (joining) joined.add(*total.text());
  for (auto s = sums.rbegin(); s != sums.rend(); ++s) {
    Value storage;
    const Value& more = eval_in_place(*(*s)->kids[1], storage);
    if (joining && plain(more)) {
      joined.add(*more.text());
      continue;
    }
    if (joining) total = joined.take();
    joining = false;
    at_ = (*s)->at;
    total = binary_operator(*this, "+", total, more);
  }
  return joining ? Value(joined.take()) : total;
}

Value Interpreter::eval_compare(const Expr& e) {
  Value a = eval(*e.kids[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value storage;
    const Value& b = eval_in_place(*e.kids[i + 1], storage);
    at_ = e.at;
    if (!compare_operator(*this, e.ops[i], a, b)) return false;
    if (i + 1 < e.ops.size()) a = b;
  }
  return true;
}

Value Interpreter::eval_slice(const Expr& e) {
  const Value of = eval(*e.kids[0]);
  std::optional<Value> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.kids[i + 1]) bounds[i] = eval(*e.kids[i + 1]);
  }
  at_ = e.at;
  return slice(*this, of, bounds[0], bounds[1], bounds[2]);
}

Args Interpreter::eval_args(const CallArgs& args) {
  Args out;
  for (const ExprPtr& p : args.positional) out.positional.push_back(eval(*p));
  if (args.more_positional) {
    for (Value& v : to_vector(*this, eval(*args.more_positional))) {
      out.positional.push_back(std::move(v));
    }
  }
  for (const auto& [name, e] : args.named) out.named.emplace_back(name, eval(*e));
  if (args.more_named) {
    const Value more = eval(*args.more_named);
    if (!more.dict()) {
      raise("TypeError", "argument after ** must be a mapping, not {}", type_name(more));
    }
    for (const auto& [k, v] : more.dict()->items) {
      if (!k.text()) raise("TypeError", "keywords must be strings");
      out.named.emplace_back(std::string(k.text()->view()), v);
    }
  }
  return out;
}

Value Interpreter::eval_call(const Expr& e) {
  const Value f = eval(*e.kids[0]);
  Args args = eval_args(e.args);
  at_ = e.at;
  return call(f, std::move(args));
}

Value Interpreter::eval_filter(const Expr& e, const Value* input) {
  const Level level(*this);
  // In a filter block the innermost filter has no expression to read from.
  Value v;
  if (!e.kids[0]) {
    v = *input;
  } else if (input && e.kids[0]->kind == ExprKind::filter) {
    v = eval_filter(*e.kids[0], input);
  } else {
    v = eval(*e.kids[0]);
  }
  Args args = eval_args(e.args);
  at_ = e.at;
  return apply_filter(e.text, v, std::move(args));
}

Value Interpreter::call(const Value& function, Args args) {
  const Level level(*this);
  if (const auto* u = function.as<UndefinedPtr>()) raise_undefined(**u);
  Object* o = function.object();
  if (!o || !o->callable()) {
    raise("TypeError", "'{}' object is not callable", type_name(function));
  }
  return o->call(*this, std::move(args));
}

Value Interpreter::apply_filter(const std::string& name, const Value& input, Args args) {
  const Level level(*this);
  budget_.charge(1);
  const FilterBody f = find_filter(name);
  if (!f) raise("TemplateRuntimeError", "No filter named {} found.", in_quotes(name));
  return f(*this, input, args);
}

bool Interpreter::apply_test(const std::string& name, const Value& input, Args args) {
  const Level level(*this);
  budget_.charge(1);
  const TestBody t = find_test(name);
  if (!t) raise("TemplateRuntimeError", "No test named {} found.", in_quotes(name));
  return t(*this, input, args);
}

Text Interpreter::text_of(const Value& v) { return spell(*this, v); }

}  // namespace nibble::jinja
