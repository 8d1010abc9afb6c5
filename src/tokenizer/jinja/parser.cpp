// SPDX-License-Identifier: MIT
// Expressions.
#include "tokenizer/jinja/parser.h"

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

constexpr int kDeepest = 400;

ExprPtr make(ExprKind kind, Position at) { return ExprPtr(new Expr{kind, at}); }

ExprPtr constant(Position at, Value v) {
  ExprPtr e = make(ExprKind::constant, at);
  e->value = std::move(v);
  return e;
}

bool is_compare(const Token& t) {
  return t.is_op("==") || t.is_op("!=") || t.is_op("<") || t.is_op("<=") || t.is_op(">") ||
         t.is_op(">=");
}

// The expressions that stand in `e`, taken out of it and put before `first`. Nothing is allocated:
// a destructor may not fail.
void take_parts(Expr& e, Expr*& first) {
  const auto take = [&](ExprPtr& part) {
    if (!part) return;
    part->next_to_go = first;
    first = part.release();
  };
  for (ExprPtr& kid : e.kids) take(kid);
  for (ExprPtr& value : e.args.positional) take(value);
  for (auto& [name, value] : e.args.named) take(value);
  take(e.args.more_positional);
  take(e.args.more_named);
}

}  // namespace

Expr::~Expr() {
  Expr* parts = nullptr;
  take_parts(*this, parts);
  while (parts) {
    const ExprPtr last(parts);
    parts = last->next_to_go;
    take_parts(*last, parts);
  }
}

Parser::Level::Level(Parser& p) : parser(p) {
  if (++p.depth_ > kDeepest) {
    --p.depth_;
    p.fail(p.now(), "the template is nested too deeply");
  }
}

void Parser::fail(const Token& where, const std::string& what) const {
  throw Raised("TemplateSyntaxError", what, where.at);
}

const Token& Parser::expect_op(std::string_view op) {
  if (!now().is_op(op)) {
    fail(now(), fmt::format("expected token '{}', got {}", op, in_quotes(describe(now()))));
  }
  return next();
}

const Token& Parser::expect(TokenKind kind, const char* what) {
  if (now().kind != kind) {
    if (now().kind == TokenKind::end) {
      fail(now(), fmt::format("unexpected end of template, expected '{}'.", what));
    }
    fail(now(), fmt::format("expected token '{}', got {}", what, in_quotes(describe(now()))));
  }
  return next();
}

const Token& Parser::expect_name() { return expect(TokenKind::name, "name"); }

const Token& Parser::expect_keyword(std::string_view name) {
  if (!now().is_name(name)) {
    fail(now(), fmt::format("expected token '{}', got {}", name, in_quotes(describe(now()))));
  }
  return next();
}

ExprPtr Parser::expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? condition() : logic_or();
}

ExprPtr Parser::condition() {
  ExprPtr e = logic_or();
  while (now().is_name("if")) {
    const Position at = next().at;
    const bool soft = std::exchange(soft_, true);
    ExprPtr c = make(ExprKind::condition, at);
    c->kids.push_back(std::move(e));
    c->kids.push_back(logic_or());
    c->kids.push_back(skip_name("else") ? expression() : nullptr);
    soft_ = soft;
    e = std::move(c);
  }
  return e;
}

ExprPtr Parser::logic_or() {
  ExprPtr e = logic_and();
  while (now().is_name("or")) {
    const Token& op = next();
    ExprPtr right = logic_and();
    e = binary(std::move(e), op, std::move(right));
    e->kind = ExprKind::logic;
  }
  return e;
}

ExprPtr Parser::logic_and() {
  ExprPtr e = logic_not();
  while (now().is_name("and")) {
    const Token& op = next();
    ExprPtr right = logic_not();
    e = binary(std::move(e), op, std::move(right));
    e->kind = ExprKind::logic;
  }
  return e;
}

ExprPtr Parser::logic_not() {
  if (!now().is_name("not")) return comparison();
  const Level level(*this);
  ExprPtr e = make(ExprKind::unary, next().at);
  e->text = "not";
  e->kids.push_back(logic_not());
  return e;
}

ExprPtr Parser::comparison() {
  ExprPtr first = sum();
  ExprPtr e;
  for (;;) {
    std::string op;
    const Position at = now().at;
    if (is_compare(now())) {
      op = next().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (now().is_name("not") && look().is_name("in")) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (!e) {
      e = make(ExprKind::compare, at);
      e->kids.push_back(std::move(first));
    }
    e->ops.push_back(op);
    e->kids.push_back(sum());
  }
  return e ? std::move(e) : std::move(first);
}

ExprPtr Parser::binary(ExprPtr left, const Token& op, ExprPtr right) {
  ExprPtr e = make(ExprKind::binary, op.at);
  e->text = op.text;
  e->kids.push_back(std::move(left));
  e->kids.push_back(std::move(right));
  return e;
}

ExprPtr Parser::sum() {
  ExprPtr e = concat();
  while (now().is_op("+") || now().is_op("-")) {
    const Token& op = next();
    ExprPtr right = concat();
    e = binary(std::move(e), op, std::move(right));
  }
  return e;
}

ExprPtr Parser::concat() {
  ExprPtr e = product();
  if (!now().is_op("~")) return e;
  ExprPtr joined = make(ExprKind::concat, now().at);
  joined->kids.push_back(std::move(e));
  while (skip_op("~")) joined->kids.push_back(product());
  return joined;
}

ExprPtr Parser::product() {
  ExprPtr e = power();
  while (now().is_op("*") || now().is_op("/") || now().is_op("//") || now().is_op("%")) {
    const Token& op = next();
    ExprPtr right = power();
    e = binary(std::move(e), op, std::move(right));
  }
  return e;
}

ExprPtr Parser::power() {
  ExprPtr e = unary();
  while (now().is_op("**")) {
    const Token& op = next();
    ExprPtr right = unary();
    e = binary(std::move(e), op, std::move(right));
  }
  return e;
}

ExprPtr Parser::unary(bool with_filter) {
  const Level level(*this);
  ExprPtr e;
  if (now().is_op("-") || now().is_op("+")) {
    const Token& op = next();
    e = make(ExprKind::unary, op.at);
    e->text = op.text;
    e->kids.push_back(unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr Parser::primary(bool with_namespace) {
  const Token& t = now();
  switch (t.kind) {
    case TokenKind::name: {
      next();
      if (t.text == "true" || t.text == "True") return constant(t.at, true);
      if (t.text == "false" || t.text == "False") return constant(t.at, false);
      if (t.text == "none" || t.text == "None") return constant(t.at, None{});
      ExprPtr e = make(ExprKind::name, t.at);
      e->symbol = symbols_.intern(t.text);
      if (macro_) {
        if (t.text == "caller") macro_->uses_caller = true;
        if (t.text == "kwargs") macro_->uses_kwargs = true;
        if (t.text == "varargs") macro_->uses_varargs = true;
      }
      if (with_namespace && skip_op(".")) {
        e->kind = ExprKind::ns_target;
        e->text = expect_name().text;
      }
      return e;
    }
    case TokenKind::text: {
      std::string s = next().text;
      while (now().kind == TokenKind::text) s += next().text;
      return constant(t.at, Text(std::move(s), Origin::written));
    }
    case TokenKind::integer: return constant(next().at, t.integer);
    case TokenKind::real: return constant(next().at, t.real);
    default: break;
  }
  if (t.is_op("(")) {
    next();
    ExprPtr e = tuple({.parentheses = true});
    expect_op(")");
    return e;
  }
  if (t.is_op("[")) return list_literal();
  if (t.is_op("{")) return dict_literal();
  fail(t, fmt::format("unexpected {}", in_quotes(describe(t))));
}

ExprPtr Parser::tuple(const TupleRules& rules) {
  const Level level(*this);
  const Position at = now().at;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_op(",");
    if (now().kind == TokenKind::variable_end || now().kind == TokenKind::block_end ||
        now().is_op(")") || (rules.end_name && now().is_name(rules.end_name))) {
      break;
    }
    items.push_back(rules.simple ? primary(rules.with_namespace)
                                 : expression(rules.with_condition));
    if (!now().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parentheses) {
      fail(now(), fmt::format("Expected an expression, got {}", in_quotes(describe(now()))));
    }
  }
  ExprPtr e = make(ExprKind::tuple, at);
  e->kids = std::move(items);
  return e;
}

ExprPtr Parser::list_literal() {
  const Level level(*this);
  ExprPtr e = make(ExprKind::list, next().at);
  while (!now().is_op("]")) {
    if (!e->kids.empty()) expect_op(",");
    if (now().is_op("]")) break;
    e->kids.push_back(expression());
  }
  expect_op("]");
  return e;
}

ExprPtr Parser::dict_literal() {
  const Level level(*this);
  ExprPtr e = make(ExprKind::dict, next().at);
  while (!now().is_op("}")) {
    if (!e->kids.empty()) expect_op(",");
    if (now().is_op("}")) break;
    e->kids.push_back(expression());
    expect_op(":");
    e->kids.push_back(expression());
  }
  expect_op("}");
  return e;
}

ExprPtr Parser::postfix(ExprPtr e) {
  for (int n = 0;; ++n) {
    if (n > kDeepest) fail(now(), "the template is nested too deeply");
    if (now().is_op(".") || now().is_op("[")) {
      e = subscript(std::move(e));
    } else if (now().is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr e) {
  for (int n = 0;; ++n) {
    if (n > kDeepest) fail(now(), "the template is nested too deeply");
    if (skip_op("|")) {
      e = filter(std::move(e));
    } else if (now().is_name("is")) {
      e = test(std::move(e));
    } else if (now().is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr of) {
  const Token& t = next();
  if (t.text == ".") {
    const Token& name = next();
    if (name.kind == TokenKind::name) {
      ExprPtr e = make(ExprKind::member, name.at);
      e->text = name.text;
      e->value = Text::written(name.text);
      e->kids.push_back(std::move(of));
      return e;
    }
    if (name.kind != TokenKind::integer) fail(name, "expected name or number");
    ExprPtr e = make(ExprKind::item, name.at);
    e->kids.push_back(std::move(of));
    e->kids.push_back(constant(name.at, name.integer));
    return e;
  }
  ExprPtr e = make(ExprKind::item, t.at);
  e->kids.push_back(std::move(of));
  if (!now().is_op(":")) {
    if (now().is_op("]")) fail(now(), "Expected an expression, got ']'");
    e->kids.push_back(expression());
    if (now().is_op(",")) {  // x[1, 2]: the key is a tuple
      ExprPtr key = make(ExprKind::tuple, t.at);
      key->kids.push_back(std::move(e->kids[1]));
      while (skip_op(",")) {
        if (!now().is_op("]")) key->kids.push_back(expression());
      }
      e->kids[1] = std::move(key);
    }
    if (skip_op("]")) return e;
  } else {
    e->kids.push_back(nullptr);
  }
  e->kind = ExprKind::slice;
  expect_op(":");
  e->kids.push_back(now().is_op(":") || now().is_op("]") ? nullptr : expression());
  e->kids.push_back(skip_op(":") && !now().is_op("]") ? expression() : nullptr);
  expect_op("]");
  return e;
}

ExprPtr Parser::call(ExprPtr of) {
  const Level level(*this);
  ExprPtr e = make(ExprKind::call, of->at);
  e->args = call_args();
  e->kids.push_back(std::move(of));
  return e;
}

CallArgs Parser::call_args() {
  const Level level(*this);
  CallArgs out;
  const Token& open = expect_op("(");
  const auto ensure = [&](bool fine) {
    if (!fine) fail(open, "invalid syntax for function call expression");
  };
  bool need_comma = false;
  while (!now().is_op(")")) {
    if (need_comma) {
      expect_op(",");
      if (now().is_op(")")) break;
    }
    if (skip_op("*")) {
      ensure(!out.more_positional && !out.more_named);
      out.more_positional = expression();
    } else if (skip_op("**")) {
      ensure(!out.more_named);
      out.more_named = expression();
    } else if (now().kind == TokenKind::name && look().is_op("=")) {
      ensure(!out.more_named);
      std::string key = next().text;
      next();
      out.named.emplace_back(std::move(key), expression());
    } else {
      ensure(!out.more_positional && !out.more_named && out.named.empty());
      out.positional.push_back(expression());
    }
    need_comma = true;
  }
  expect_op(")");
  return out;
}

ExprPtr Parser::filter(ExprPtr of) {
  const Level level(*this);
  const Token& name = expect_name();
  ExprPtr e = make(ExprKind::filter, name.at);
  e->text = name.text;
  while (skip_op(".")) e->text += "." + expect_name().text;
  if (now().is_op("(")) e->args = call_args();
  if (!soft_ && !is_filter(e->text)) {
    throw Raised("TemplateAssertionError", fmt::format("No filter named {}.", in_quotes(e->text)),
                 name.at);
  }
  e->kids.push_back(std::move(of));
  return e;
}

// The filters of {% set x | upper %} and of a filter block: their first input is what comes later.
ExprPtr Parser::filter_chain(ExprPtr e) {
  for (int n = 0; skip_op("|"); ++n) {
    if (n > kDeepest) fail(now(), "the template is nested too deeply");
    e = filter(std::move(e));
  }
  return e;
}

ExprPtr Parser::test(ExprPtr of) {
  const Level level(*this);
  const Position at = next().at;
  const bool negated = skip_name("not");
  const Token& name = expect_name();
  ExprPtr e = make(ExprKind::test, name.at);
  e->text = name.text;
  while (skip_op(".")) e->text += "." + expect_name().text;
  const Token& t = now();
  if (t.is_op("(")) {
    e->args = call_args();
  } else if ((t.kind == TokenKind::name || t.kind == TokenKind::text ||
              t.kind == TokenKind::integer || t.kind == TokenKind::real || t.is_op("[") ||
              t.is_op("{")) &&
             !t.is_name("else") && !t.is_name("or") && !t.is_name("and")) {
    if (t.is_name("is")) fail(t, "You cannot chain multiple tests with is");
    e->args.positional.push_back(postfix(primary()));
  }
  if (!soft_ && !is_test(e->text)) {
    throw Raised("TemplateAssertionError", fmt::format("No test named {}.", in_quotes(e->text)),
                 name.at);
  }
  e->kids.push_back(std::move(of));
  if (!negated) return e;
  ExprPtr n = make(ExprKind::unary, at);
  n->text = "not";
  n->kids.push_back(std::move(e));
  return n;
}

}  // namespace nibble::jinja
