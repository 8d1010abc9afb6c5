// SPDX-License-Identifier: MIT
// Making values and asking what they are; compare.cpp has equality and order.
#include "tokenizer/jinja/value.h"

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

int depth_of(const Value& v) {
  if (const List* l = v.list()) return l->depth;
  if (const Dict* d = v.dict()) return d->depth;
  return 0;
}

void check_depth(int depth, Budget& budget) {
  if (depth > budget.limits().nesting) {
    raise("LimitError", "lists and dicts are nested more than {} deep", budget.limits().nesting);
  }
}

class VectorIterator final : public Iterator {
 public:
  explicit VectorIterator(std::vector<Value> items) : items_(std::move(items)) {}
  bool next(Interpreter&, Value& out) override {
    if (at_ >= items_.size()) return false;
    out = items_[at_++];
    return true;
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

class ListIterator final : public Iterator {
 public:
  explicit ListIterator(ListPtr list) : list_(std::move(list)) {}
  bool next(Interpreter&, Value& out) override {
    if (at_ >= list_->items.size()) return false;
    out = list_->items[at_++];
    return true;
  }

 private:
  ListPtr list_;
  size_t at_ = 0;
};

class KeyIterator final : public Iterator {
 public:
  explicit KeyIterator(DictPtr dict) : dict_(std::move(dict)) {}
  bool next(Interpreter&, Value& out) override {
    if (at_ >= dict_->items.size()) return false;
    out = dict_->items[at_++].first;
    return true;
  }

 private:
  DictPtr dict_;
  size_t at_ = 0;
};

class CharacterIterator final : public Iterator {
 public:
  explicit CharacterIterator(Text text) : text_(std::move(text)) {}
  bool next(Interpreter& in, Value& out) override {
    const std::string_view s = text_.view();
    if (at_ >= s.size()) return false;
    size_t end = at_ + 1;
    while (end < s.size() && (uint8_t(s[end]) & 0xc0) == 0x80) ++end;
    out = text_.bytes(at_, end, in.budget()).with_markup(false);
    at_ = end;
    return true;
  }

 private:
  Text text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> Value::integer() const {
  if (const int64_t* i = as<int64_t>()) return *i;
  if (const bool* b = as<bool>()) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* d = as<double>()) return *d;
  if (const auto i = integer()) return double(*i);
  return std::nullopt;
}

// From one to the next, though each is let go by the one before.
void Value::let_go() noexcept {
  constexpr int kDeepest = 100;
  thread_local int depth = 0;
  thread_local std::vector<Value> later;
  if (depth >= kDeepest) {
    later.push_back(std::move(*this));
    return;
  }
  ++depth;
  v_ = None{};
  while (depth == 1 && !later.empty()) {
    const Value next = std::move(later.back());
    later.pop_back();
  }
  --depth;
}

std::optional<size_t> Dict::index_of(const Value& key, Budget& budget) const {
  budget.charge(int64_t(items.size() / 8));
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i].first, key, budget)) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  const auto i = index_of(key, budget);
  return i ? &items[*i].second : nullptr;
}

Value undefined(std::string reason, const char* kind) {
  return std::make_shared<const Undefined>(Undefined{kind, std::move(reason)});
}

Value undefined_name(Text name) {
  return std::make_shared<const Undefined>(Undefined{"UndefinedError", {}, std::move(name)});
}

Value undefined_member(const Value& of, const Value& name) {
  if (name.text()) {
    return std::make_shared<const Undefined>(
        Undefined{"UndefinedError", {}, *name.text(), object_type(of)});
  }
  return undefined(fmt::format("{} has no element {}", object_type(of), plain_repr(name)));
}

std::string Undefined::reason() const {
  if (!given.empty()) return given;
  const std::string quoted = in_quotes(name.view());
  if (of.empty()) return fmt::format("{} is undefined", quoted);
  return fmt::format("{} has no attribute {}", in_quotes(of), quoted);
}

Value written(std::string_view text) { return Text::written(text); }

Value make_list(std::vector<Value> items, Budget& budget, bool tuple) {
  auto list = std::make_shared<List>();
  for (const Value& v : items) list->depth = std::max(list->depth, depth_of(v) + 1);
  check_depth(list->depth, budget);
  budget.charge(int64_t(items.size()));
  list->items = std::move(items);
  list->tuple = tuple;
  return ListPtr(std::move(list));
}

void DictBuilder::set(Value key, Value value) {
  if (!hashable(key, budget_)) raise("TypeError", "unhashable type: '{}'", type_name(key));
  dict_.depth = std::max({dict_.depth, depth_of(value) + 1, depth_of(key) + 1});
  if (const auto there = dict_.index_of(key, budget_)) {
    dict_.items[*there].second = std::move(value);
  } else {
    dict_.items.emplace_back(std::move(key), std::move(value));
  }
}

Value DictBuilder::take() {
  check_depth(dict_.depth, budget_);
  budget_.charge(int64_t(dict_.items.size()) + 1);
  return DictPtr(std::make_shared<const Dict>(std::move(dict_)));
}

Value Object::call(Interpreter&, Args) {
  raise("TypeError", "'{}' object is not callable", type_name());
}

std::string type_name(const Value& v) {
  if (v.is_none()) return "NoneType";
  if (v.is_undefined()) return "Undefined";
  if (v.as<bool>()) return "bool";
  if (v.as<int64_t>()) return "int";
  if (v.as<double>()) return "float";
  if (v.text()) return v.text()->markup() ? "Markup" : "str";
  if (v.list()) return v.list()->tuple ? "tuple" : "list";
  if (v.dict()) return "dict";
  return v.object()->type_name();
}

std::string object_type(const Value& v) {
  if (v.is_none()) return "None";
  if (v.text() && v.text()->markup()) return "markupsafe.Markup object";
  if (v.object()) return v.object()->type_path() + " object";
  return type_name(v) + " object";
}

bool truth(const Value& v, Interpreter& in) {
  if (v.is_none() || v.is_undefined()) return false;
  if (const bool* b = v.as<bool>()) return *b;
  if (const int64_t* i = v.as<int64_t>()) return *i != 0;
  if (const double* d = v.as<double>()) return *d != 0;
  if (v.text()) return !v.text()->empty();
  if (v.list()) return !v.list()->items.empty();
  if (v.dict()) return !v.dict()->items.empty();
  const auto n = v.object()->length(in);
  return !n || *n > 0;
}

void raise_undefined(const Undefined& u) { throw Raised(u.kind, u.reason()); }

IteratorPtr vector_iterator(std::vector<Value> items) {
  return std::make_shared<VectorIterator>(std::move(items));
}

IteratorPtr iterate(Interpreter&, const Value& v) {
  if (v.is_undefined()) return vector_iterator({});
  if (v.text()) return std::make_shared<CharacterIterator>(*v.text());
  if (const ListPtr* l = v.as<ListPtr>()) return std::make_shared<ListIterator>(*l);
  if (const DictPtr* d = v.as<DictPtr>()) return std::make_shared<KeyIterator>(*d);
  if (const ObjectPtr* o = v.as<ObjectPtr>()) {
    if (IteratorPtr it = (*o)->iterate(*o)) return it;
  }
  raise("TypeError", "'{}' object is not iterable", type_name(v));
}

std::vector<Value> to_vector(Interpreter& in, const Value& v) {
  if (v.list()) return v.list()->items;
  std::vector<Value> out;
  const IteratorPtr it = iterate(in, v);
  for (Value item; it->next(in, item);) {
    in.budget().charge(1);
    out.push_back(item);
  }
  return out;
}

int64_t length(Interpreter& in, const Value& v) {
  if (v.is_undefined()) return 0;
  if (v.text()) return v.text()->length();
  if (v.list()) return int64_t(v.list()->items.size());
  if (v.dict()) return int64_t(v.dict()->items.size());
  if (v.object()) {
    if (const auto n = v.object()->length(in)) return *n;
  }
  raise("TypeError", "object of type '{}' has no len()", type_name(v));
}

}  // namespace nibble::jinja
