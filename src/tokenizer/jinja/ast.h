// SPDX-License-Identifier: MIT
// A template as a tree. Names are numbers (Symbols), so that looking a variable up compares ints.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace nibble::jinja {

using Symbol = int;

class Symbols {
 public:
  Symbol intern(std::string_view name) {
    const auto [at, fresh] = ids_.try_emplace(std::string(name), Symbol(names_.size()));
    if (fresh) names_.emplace_back(name);
    return at->second;
  }
  Symbol find(std::string_view name) const {  // -1: the template never says this name
    const auto at = ids_.find(std::string(name));
    return at == ids_.end() ? -1 : at->second;
  }
  const std::string& name(Symbol s) const { return names_[size_t(s)]; }
  size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, Symbol> ids_;
  std::vector<std::string> names_;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional, more_named;  // *args, **kwargs
};

enum class ExprKind {
  constant,   // value
  name,       // symbol
  member,     // kids[0].text
  item,       // kids[0][kids[1]]
  slice,      // kids[0][kids[1]:kids[2]:kids[3]], each of 1..3 may be null
  call,       // kids[0](args)
  filter,     // kids[0] | text(args); kids[0] is null in a filter block
  test,       // kids[0] is text(args)
  list,       // [kids]
  tuple,      // (kids)
  dict,       // {kids[0]: kids[1], ...}
  unary,      // text: "-", "+", "not"
  binary,     // text: "+", "-", "*", "/", "//", "%", "**"
  concat,     // kids joined by ~
  logic,      // kids[0] text kids[1]: "and", "or"
  compare,    // kids[0] ops[0] kids[1] ops[1] kids[2] ...
  condition,  // kids[0] if kids[1] else kids[2] (may be null)
  ns_target,  // symbol.text, only where something is assigned to
};

struct Expr {
  ExprKind kind;
  Position at;
  std::string text = {};
  Symbol symbol = -1;
  Value value = {};
  std::vector<ExprPtr> kids = {};
  std::vector<std::string> ops = {};
  CallArgs args = {};
  Expr* next_to_go = nullptr;  // while the destructor of another takes it apart
  ~Expr();                     // not level by level: a sum of a million terms is a million deep
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// Arguments and body of a macro, a call block or a generation block.
struct MacroParts {
  std::string name;  // empty: a caller
  std::vector<Symbol> params;
  std::vector<ExprPtr> defaults;  // of the last ones
  Body body;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

enum class StmtKind {
  data,        // text
  print,       // expr
  set,         // target = expr
  set_block,   // target = body, through the filter `expr` if there is one
  condition,   // branches: (expr, body), else without an expr
  loop,        // for target in expr if test: body else: other
  macro,       // parts, symbol
  call,        // expr is the call, parts its caller
  filter,      // body through the filter expr
  with,        // targets = values: body
  scope,       // body in a scope of its own
  generation,  // parts: what the model is to write
  break_loop,
  continue_loop,
};

struct Stmt {
  StmtKind kind;
  Position at;
  Text text = {};
  Symbol symbol = -1;
  ExprPtr target = {}, expr = {}, test = {};
  bool recursive = false;
  Body body = {}, other = {};
  std::vector<std::pair<ExprPtr, Body>> branches = {};
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings = {};
  std::shared_ptr<MacroParts> parts = {};
};

struct Tree {
  Symbols symbols;
  Body body;
  std::vector<Value> functions;  // by symbol: the builtin of that name, or none
};

// Throws Raised("TemplateSyntaxError" or "TemplateAssertionError").
Tree parse(std::string_view source);

}  // namespace nibble::jinja
