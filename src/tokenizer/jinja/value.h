// SPDX-License-Identifier: MIT
// The values of a template, with Python's meaning: what is true, equal, smaller, iterable.
// Lists and dicts never change after they are made (the sandbox of chat templates forbids it), so
// they are shared freely and cannot contain themselves.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja/text.h"

namespace nibble::jinja {

class Interpreter;
class Object;
class Value;
struct List;
struct Dict;

// A name or member that is not there. Printing and iterating it gives nothing; most else raises.
// Why it is not there is put into words only when somebody asks: most are only tested for.
struct Undefined;

struct None {};
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;
using UndefinedPtr = std::shared_ptr<const Undefined>;

class Value {
 public:
  Value() = default;
  Value(None) {}
  Value(bool b) : v_(b) {}
  Value(int64_t i) : v_(i) {}
  Value(double d) : v_(d) {}
  Value(Text t) : v_(std::move(t)) {}
  Value(ListPtr l) : v_(std::move(l)) {}
  Value(DictPtr d) : v_(std::move(d)) {}
  Value(ObjectPtr o) : v_(std::move(o)) {}
  Value(UndefinedPtr u) : v_(std::move(u)) {}
  Value(const char*) = delete;  // would be a bool
  Value(const Value&) = default;
  Value(Value&&) = default;
  Value& operator=(const Value&) = default;
  Value& operator=(Value&&) = default;
  // A chain of values that hold each other may be longer than the stack is deep.
  ~Value() {
    if (holds_last()) let_go();
  }

  template <class T>
  const T* as() const {
    return std::get_if<T>(&v_);
  }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_undefined() const { return as<UndefinedPtr>() != nullptr; }
  const Text* text() const { return as<Text>(); }
  const List* list() const { return as<ListPtr>() ? as<ListPtr>()->get() : nullptr; }  // or tuple
  const Dict* dict() const { return as<DictPtr>() ? as<DictPtr>()->get() : nullptr; }
  Object* object() const { return as<ObjectPtr>() ? as<ObjectPtr>()->get() : nullptr; }
  // Python's int, of which bool is a kind.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;  // int, bool or float

 private:
  // Whether other values may go with this one.
  bool holds_last() const {
    if (const ListPtr* l = as<ListPtr>()) return l->use_count() == 1;
    if (const DictPtr* d = as<DictPtr>()) return d->use_count() == 1;
    if (const ObjectPtr* o = as<ObjectPtr>()) return o->use_count() == 1;
    return false;
  }
  void let_go() noexcept;

  std::variant<None, bool, int64_t, double, Text, ListPtr, DictPtr, ObjectPtr, UndefinedPtr> v_;
};

// Holds no values: those could hold others like it, in chains without end.
struct Undefined {
  std::string kind = "UndefinedError";
  std::string given = {};  // the reason; or it is about a name,
  Text name = {};
  std::string of = {};  // or about a member of this kind of value
  std::string reason() const;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;  // of containers in containers
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  int depth = 1;
  const Value* find(const Value& key, Budget& budget) const;
  std::optional<size_t> index_of(const Value& key, Budget& budget) const;
};

Value undefined(std::string reason, const char* kind = "UndefinedError");
Value undefined_name(Text name);
Value undefined_member(const Value& of, const Value& name);
Value written(std::string_view text);

// Containers that are too deep in each other, or keys that cannot be keys, raise.
Value make_list(std::vector<Value> items, Budget& budget, bool tuple = false);
class DictBuilder {
 public:
  explicit DictBuilder(Budget& budget) : budget_(budget) {}
  void set(Value key, Value value);
  Value take();

 private:
  Budget& budget_;
  Dict dict_;
};

// What a call is given.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Iterator {
 public:
  virtual ~Iterator() = default;
  // False at the end. May run the template's own code (filters, tests).
  virtual bool next(Interpreter& in, Value& out) = 0;
};
using IteratorPtr = std::shared_ptr<Iterator>;

// Everything else: functions, macros, namespaces, ranges, generators, views of dicts, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string type_path() const { return type_name(); }  // with its module
  virtual std::optional<Value> attribute(Interpreter&, std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& in, Args args);
  virtual IteratorPtr iterate(const ObjectPtr&) { return nullptr; }
  virtual std::optional<int64_t> length(Interpreter&) { return std::nullopt; }
  virtual std::optional<Value> item(int64_t) const { return std::nullopt; }  // 0 <= i < length
  virtual bool sequence() const { return false; }                            // has items by number
  virtual std::string repr(Interpreter&) const { return "<" + type_name() + " object>"; }
};

std::string type_name(const Value& v);    // "NoneType"
std::string object_type(const Value& v);  // "dict object", for messages about members
bool truth(const Value& v, Interpreter& in);
bool same_object(const Value& a, const Value& b);  // Python's `is`
// Lists that share their parts are small and take long to compare: every element is a step.
bool equal(const Value& a, const Value& b, Budget& budget);
// Raises where Python does.
bool less(const Value& a, const Value& b, Budget& budget, const char* op = "<");
bool contains(Interpreter& in, const Value& container, const Value& item);
bool hashable(const Value& v, Budget& budget);
[[noreturn]] void raise_undefined(const Undefined& u);

// Raises "'int' object is not iterable".
IteratorPtr iterate(Interpreter& in, const Value& v);
std::vector<Value> to_vector(Interpreter& in, const Value& v);
int64_t length(Interpreter& in, const Value& v);  // raises where Python's len() does
// A tuple or list's iterator: the elements are kept alive.
IteratorPtr vector_iterator(std::vector<Value> items);

// A generator: an iterator as a value, used up by whoever reads it.
class Generator final : public Object {
 public:
  explicit Generator(IteratorPtr iterator, std::string type = "generator")
      : iterator_(std::move(iterator)), type_(std::move(type)) {}
  std::string type_name() const override { return type_; }
  IteratorPtr iterate(const ObjectPtr&) override { return iterator_; }

 private:
  IteratorPtr iterator_;
  std::string type_;
};

}  // namespace nibble::jinja
