// SPDX-License-Identifier: MIT
// Statements: what stands in {% %}.
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/parser.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {

Tree parse(std::string_view source) {
  Tree tree;
  Parser parser(tokenize(source), tree.symbols);
  tree.body = parser.parse_template();
  for (size_t s = 0; s < tree.symbols.size(); ++s) {
    tree.functions.push_back(global_function(tree.symbols.name(Symbol(s))));
  }
  return tree;
}

Body Parser::parse_template() { return body({}); }

// Text, prints and statements up to a tag of this name, which is left for the caller to read. The
// template's end is one of the ends when none is named.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Body out;
  for (;;) {
    const Token& t = now();
    if (t.kind == TokenKind::end) {
      if (ends.size() == 0) return out;
      std::string wanted;
      for (const std::string_view e : ends) {
        wanted += (wanted.empty() ? "" : " or ") + in_quotes(e);
      }
      fail(t, fmt::format("Unexpected end of template. Jinja was looking for the following tags: "
                          "{}. The innermost block that needs to be closed is {}.",
                          wanted, in_quotes(tag_)));
    }
    next();
    if (t.kind == TokenKind::data) {
      out.push_back(std::make_unique<Stmt>(Stmt{StmtKind::data, t.at, Text::written(t.text)}));
    } else if (t.kind == TokenKind::variable_begin) {
      auto s = std::make_unique<Stmt>(Stmt{StmtKind::print, t.at});
      s->expr = tuple({});
      expect(TokenKind::variable_end, "end of print statement");
      out.push_back(std::move(s));
    } else if (t.kind == TokenKind::block_begin) {
      for (const std::string_view e : ends) {
        if (now().is_name(e)) return out;
      }
      out.push_back(statement());
      expect(TokenKind::block_end, "end of statement block");
    } else {
      fail(t, fmt::format("unexpected {}", in_quotes(describe(t))));
    }
  }
}

Body Parser::block_body(std::initializer_list<std::string_view> ends) {
  skip_op(":");
  expect(TokenKind::block_end, "end of statement block");
  return body(ends);
}

std::unique_ptr<Stmt> Parser::statement() {
  const Level level(*this);
  const Token& name = now();
  if (name.kind != TokenKind::name) fail(name, "tag name expected");
  next();
  const std::string outer = std::exchange(tag_, name.text);
  auto s = std::make_unique<Stmt>(Stmt{StmtKind::scope, name.at});
  if (name.text == "for") {
    statement_for(*s);
  } else if (name.text == "if") {
    statement_if(*s);
  } else if (name.text == "set") {
    statement_set(*s);
  } else if (name.text == "macro") {
    statement_macro(*s);
  } else if (name.text == "call") {
    statement_call(*s);
  } else if (name.text == "with") {
    statement_with(*s);
  } else if (name.text == "filter") {
    s->kind = StmtKind::filter;
    s->expr = filter_chain(filter(nullptr));
    s->body = block_body({"endfilter"});
    next();
  } else if (name.text == "generation") {
    s->kind = StmtKind::generation;
    s->parts = std::make_shared<MacroParts>();
    macro_body(*s->parts, "endgeneration");
  } else if (name.text == "print") {
    s->kind = StmtKind::print;
    s->expr = tuple({});
  } else if (name.text == "break" || name.text == "continue") {
    if (loops_ == 0) fail(name, fmt::format("'{}' outside loop", name.text));
    s->kind = name.text == "break" ? StmtKind::break_loop : StmtKind::continue_loop;
  } else if (name.text == "block" || name.text == "extends" || name.text == "include" ||
             name.text == "import" || name.text == "from" || name.text == "autoescape") {
    fail(name, fmt::format("'{}' is not supported: a chat template is one file", name.text));
  } else {
    unknown_tag(name);
  }
  tag_ = outer;
  return s;
}

void Parser::unknown_tag(const Token& name) {
  fail(name, fmt::format("Encountered unknown tag {}.", in_quotes(name.text)));
}

ExprPtr Parser::assign_target(bool with_namespace, const char* end_name) {
  const Token& where = now();
  ExprPtr e = tuple({.simple = true, .with_namespace = with_namespace, .end_name = end_name});
  const auto check = [&](const auto& self, const Expr& t) -> void {
    if (t.kind == ExprKind::tuple) {
      for (const ExprPtr& k : t.kids) self(self, *k);
    } else if (t.kind != ExprKind::name && t.kind != ExprKind::ns_target) {
      fail(where, fmt::format("can't assign to '{}'", t.kind == ExprKind::constant ? "const"
                                                      : t.kind == ExprKind::list   ? "list"
                                                                                   : "expression"));
    }
  };
  check(check, *e);
  return e;
}

Symbol Parser::target_name() {
  const Token& t = expect_name();
  if (t.text == "true" || t.text == "false" || t.text == "none" || t.text == "True" ||
      t.text == "False" || t.text == "None") {
    fail(t, "can't assign to 'const'");
  }
  return symbols_.intern(t.text);
}

void Parser::statement_for(Stmt& s) {
  s.kind = StmtKind::loop;
  s.target = assign_target(false, "in");
  expect_keyword("in");
  s.expr = tuple({.with_condition = false, .end_name = "recursive"});
  if (skip_name("if")) s.test = expression();
  s.recursive = skip_name("recursive");
  const bool soft = std::exchange(soft_, false);
  ++loops_;
  s.body = block_body({"endfor", "else"});
  --loops_;
  if (next().text == "else") {
    s.other = block_body({"endfor"});
    next();
  }
  soft_ = soft;
}

void Parser::statement_if(Stmt& s) {
  s.kind = StmtKind::condition;
  const bool soft = std::exchange(soft_, true);
  for (;;) {
    ExprPtr test = tuple({.with_condition = false});
    Body then = block_body({"elif", "else", "endif"});
    s.branches.emplace_back(std::move(test), std::move(then));
    const Token& end = next();
    if (end.text == "elif") continue;
    if (end.text == "else") {
      s.branches.emplace_back(nullptr, block_body({"endif"}));
      next();
    }
    break;
  }
  soft_ = soft;
}

void Parser::statement_set(Stmt& s) {
  s.target = assign_target(true);
  if (skip_op("=")) {
    s.kind = StmtKind::set;
    s.expr = tuple({});
    return;
  }
  s.kind = StmtKind::set_block;
  s.expr = filter_chain(nullptr);
  s.body = block_body({"endset"});
  next();
}

void Parser::signature(MacroParts& parts) {
  expect_op("(");
  while (!now().is_op(")")) {
    if (!parts.params.empty()) expect_op(",");
    parts.params.push_back(target_name());
    if (skip_op("=")) {
      parts.defaults.push_back(expression());
    } else if (!parts.defaults.empty()) {
      fail(now(), "non-default argument follows default argument");
    }
  }
  expect_op(")");
}

void Parser::macro_body(MacroParts& parts, std::string_view end) {
  const bool soft = std::exchange(soft_, false);
  const int loops = std::exchange(loops_, 0);
  MacroParts* outer = std::exchange(macro_, &parts);
  parts.body = block_body({end});
  next();
  macro_ = outer;
  loops_ = loops;
  soft_ = soft;
  // What an inner macro or call block says is said in the outer one, too.
  if (outer) {
    outer->uses_caller |= parts.uses_caller;
    outer->uses_kwargs |= parts.uses_kwargs;
    outer->uses_varargs |= parts.uses_varargs;
  }
}

void Parser::statement_macro(Stmt& s) {
  s.kind = StmtKind::macro;
  const Token& name = now();
  s.symbol = target_name();
  s.parts = std::make_shared<MacroParts>();
  s.parts->name = name.text;
  signature(*s.parts);
  macro_body(*s.parts, "endmacro");
}

void Parser::statement_call(Stmt& s) {
  s.kind = StmtKind::call;
  s.parts = std::make_shared<MacroParts>();
  if (now().is_op("(")) signature(*s.parts);
  const Token& where = now();
  s.expr = expression();
  if (s.expr->kind != ExprKind::call) fail(where, "expected call");
  macro_body(*s.parts, "endcall");
}

void Parser::statement_with(Stmt& s) {
  s.kind = StmtKind::with;
  while (now().kind != TokenKind::block_end && !now().is_op(":")) {
    if (!s.bindings.empty()) expect_op(",");
    ExprPtr target = assign_target(false);
    expect_op("=");
    s.bindings.emplace_back(std::move(target), expression());
  }
  s.body = block_body({"endwith"});
  next();
}

}  // namespace nibble::jinja
