// SPDX-License-Identifier: MIT
// Recursive descent over the tokens: parser.cpp has expressions, parser_statements.cpp the rest.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace nibble::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, Symbols& symbols)
      : tokens_(std::move(tokens)), symbols_(symbols) {}
  Body parse_template();

 private:
  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& t = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return t;
  }
  bool skip_op(std::string_view op) { return now().is_op(op) ? (next(), true) : false; }
  bool skip_name(std::string_view name) { return now().is_name(name) ? (next(), true) : false; }
  const Token& expect_op(std::string_view op);
  const Token& expect_name();
  const Token& expect_keyword(std::string_view name);
  const Token& expect(TokenKind kind, const char* what);
  [[noreturn]] void fail(const Token& where, const std::string& what) const;

  // Expressions, loosest first.
  ExprPtr expression(bool with_condition = true);
  ExprPtr condition();
  ExprPtr logic_or();
  ExprPtr logic_and();
  ExprPtr logic_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr postfix(ExprPtr e);
  ExprPtr filters_and_tests(ExprPtr e);
  ExprPtr subscript(ExprPtr e);
  ExprPtr filter(ExprPtr e);  // behind the '|'
  ExprPtr filter_chain(ExprPtr e);
  ExprPtr test(ExprPtr e);
  ExprPtr call(ExprPtr e);
  ExprPtr list_literal();
  ExprPtr dict_literal();
  CallArgs call_args();
  struct TupleRules {
    bool simple = false, with_condition = true, parentheses = false, with_namespace = false;
    const char* end_name = nullptr;
  };
  ExprPtr tuple(const TupleRules& rules);
  ExprPtr binary(ExprPtr left, const Token& op, ExprPtr right);

  // Statements.
  Body body(std::initializer_list<std::string_view> ends);
  Body block_body(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Stmt> statement();
  void statement_for(Stmt& s);
  void statement_if(Stmt& s);
  void statement_set(Stmt& s);
  void statement_macro(Stmt& s);
  void statement_call(Stmt& s);
  void statement_with(Stmt& s);
  std::shared_ptr<MacroParts> macro_parts(std::string name);
  void signature(MacroParts& parts);
  void macro_body(MacroParts& parts, std::string_view end);
  ExprPtr assign_target(bool with_namespace, const char* end_name = nullptr);
  Symbol target_name();
  [[noreturn]] void unknown_tag(const Token& name);

  // Every level of nesting passes one of these, so that hostile templates cannot exhaust the stack.
  struct Level {
    explicit Level(Parser& p);
    ~Level() { --parser.depth_; }
    Parser& parser;
  };

  std::vector<Token> tokens_;
  Symbols& symbols_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;      // that surround this place
  bool soft_ = false;  // inside an `if`: an unknown filter is an error only when it is reached
  MacroParts* macro_ = nullptr;
  std::string tag_;  // the statement that is being read, for messages
};

}  // namespace nibble::jinja
