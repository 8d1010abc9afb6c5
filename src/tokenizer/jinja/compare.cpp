// SPDX-License-Identifier: MIT
// Equality, order and membership as Python has them.
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/value.h"

namespace nibble::jinja {
namespace {

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], budget)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [k, v] : a.items) {
    const Value* other = b.find(k, budget);
    if (!other || !equal(v, *other, budget)) return false;
  }
  return true;
}

}  // namespace

bool same_object(const Value& a, const Value& b) {
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.as<bool>() || b.as<bool>()) {
    return a.as<bool>() && b.as<bool>() && *a.as<bool>() == *b.as<bool>();
  }
  if (a.as<int64_t>() && b.as<int64_t>()) return *a.as<int64_t>() == *b.as<int64_t>();
  if (a.list() || b.list()) return a.list() == b.list();
  if (a.dict() || b.dict()) return a.dict() == b.dict();
  if (a.object() || b.object()) return a.object() == b.object();
  if (a.text() && b.text()) return a.text()->view() == b.text()->view();
  return false;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  if (a.text() && b.text()) {
    if (a.text()->size() != b.text()->size()) return false;
    budget.charge_text(a.text()->size());
    return a.text()->view() == b.text()->view();
  }
  budget.charge(1);
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.list() && b.list()) {
    return a.list()->tuple == b.list()->tuple &&
           equal_items(a.list()->items, b.list()->items, budget);
  }
  if (a.dict() && b.dict()) return equal_dicts(*a.dict(), *b.dict(), budget);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.object() && b.object()) return a.object() == b.object();
  return a.is_none() && b.is_none();
}

bool less(const Value& a, const Value& b, Budget& budget, const char* op) {
  budget.charge(1);
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) raise_undefined(**v->as<UndefinedPtr>());
  }
  // UTF-8 sorts like code points.
  if (a.text() && b.text()) {
    budget.charge_text(std::min(a.text()->size(), b.text()->size()));
    return a.text()->view() < b.text()->view();
  }
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.number() && b.number()) return *a.number() < *b.number();
  if (a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget, op);
    }
    return x.size() < y.size();
  }
  // a > b is asked as b < a, and named as it was written.
  const bool turned = op == std::string_view(">") || op == std::string_view("<=");
  raise("TypeError", "'{}' not supported between instances of '{}' and '{}'", op,
        type_name(turned ? b : a), type_name(turned ? a : b));
}

bool hashable(const Value& v, Budget& budget) {
  if (v.dict()) return false;
  if (const List* l = v.list()) {
    if (!l->tuple) return false;
    for (const Value& item : l->items) {
      budget.charge(1);
      if (!hashable(item, budget)) return false;
    }
  }
  return true;
}

bool contains(Interpreter& in, const Value& container, const Value& item) {
  if (container.text()) {
    if (item.is_undefined()) raise_undefined(**item.as<UndefinedPtr>());
    if (!item.text()) {
      raise("TypeError", "'in <string>' requires string as left operand, not {}", type_name(item));
    }
    in.budget().charge_text(container.text()->size());
    return container.text()->view().find(item.text()->view()) != std::string_view::npos;
  }
  if (container.dict()) {
    if (!hashable(item, in.budget())) {
      raise("TypeError", "unhashable type: '{}'", type_name(item));
    }
    return container.dict()->find(item, in.budget()) != nullptr;
  }
  if (!container.list() && !container.is_undefined() &&
      !(container.object() && container.object()->iterate(*container.as<ObjectPtr>()))) {
    raise("TypeError", "argument of type '{}' is not iterable", type_name(container));
  }
  const IteratorPtr it = iterate(in, container);
  for (Value v; it->next(in, v);) {
    in.budget().charge(1);
    if (equal(v, item, in.budget())) return true;
  }
  return false;
}

}  // namespace nibble::jinja
