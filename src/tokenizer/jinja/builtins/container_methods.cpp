// SPDX-License-Identifier: MIT
// Methods of list, tuple and dict. Those that would change them are refused in attributes.cpp.
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace container_methods {
namespace {

// dict.keys(), .values(), .items().
class View final : public Object {
 public:
  enum class What { keys, values, items };
  View(DictPtr dict, What what) : dict_(std::move(dict)), what_(what) {}
  std::string type_name() const override {
    return what_ == What::keys ? "dict_keys" : what_ == What::values ? "dict_values" : "dict_items";
  }
  std::optional<int64_t> length(Interpreter&) override { return int64_t(dict_->items.size()); }
  IteratorPtr iterate(const ObjectPtr&) override { return std::make_shared<Walk>(dict_, what_); }
  std::string repr(Interpreter& in) const override {
    std::vector<Value> all;
    Walk walk(dict_, what_);
    for (Value v; walk.next(in, v);) all.push_back(v);
    const Value list = make_list(std::move(all), in.budget());
    return type_name() + "(" + std::string(jinja::repr(in, list).view()) + ")";
  }

 private:
  class Walk final : public Iterator {
   public:
    Walk(DictPtr dict, What what) : dict_(std::move(dict)), what_(what) {}
    bool next(Interpreter& in, Value& out) override {
      if (at_ >= dict_->items.size()) return false;
      const auto& [k, v] = dict_->items[at_++];
      out = what_ == What::keys     ? k
            : what_ == What::values ? v
                                    : make_list({k, v}, in.budget(), true);
      return true;
    }

   private:
    DictPtr dict_;
    What what_;
    size_t at_ = 0;
  };
  DictPtr dict_;
  What what_;
};

Value view(const Value& self, Args& args, View::What what) {
  Params("dict method", args, {});
  return ObjectPtr(std::make_shared<View>(*self.as<DictPtr>(), what));
}
Value keys(Interpreter&, const Value& self, Args& args) {
  return view(self, args, View::What::keys);
}
Value values(Interpreter&, const Value& self, Args& args) {
  return view(self, args, View::What::values);
}
Value items(Interpreter&, const Value& self, Args& args) {
  return view(self, args, View::What::items);
}

Value get(Interpreter& in, const Value& self, Args& args) {
  const Params p("get", args, {"key", "default"}, 1);
  if (!hashable(*p[0], in.budget())) {
    raise("TypeError", "unhashable type: '{}'", type_name(*p[0]));
  }
  const Value* v = self.dict()->find(*p[0], in.budget());
  return v ? *v : p.value(1, None{});
}

Value copy(Interpreter&, const Value& self, Args& args) {
  Params("copy", args, {});
  return self;  // nothing can change it
}

Value fromkeys(Interpreter& in, const Value&, Args& args) {
  const Params p("fromkeys", args, {"iterable", "value"}, 1);
  DictBuilder out(in.budget());
  for (const Value& k : to_vector(in, *p[0])) out.set(k, p.value(1, None{}));
  return out.take();
}

Value index(Interpreter& in, const Value& self, Args& args) {
  const Params p("index", args, {"value", "start", "stop"}, 1);
  const auto& all = self.list()->items;
  const auto n = int64_t(all.size());
  const auto place = [&](size_t i, int64_t otherwise) {
    const int64_t v = p.integer(i, otherwise);
    return v < 0 ? std::max<int64_t>(v + n, 0) : std::min(v, n);
  };
  in.budget().charge(n);
  for (int64_t i = place(1, 0); i < place(2, n); ++i) {
    if (equal(all[size_t(i)], *p[0], in.budget())) return i;
  }
  if (self.list()->tuple) raise("ValueError", "tuple.index(x): x not in tuple");
  raise("ValueError", "{} is not in list", repr(in, *p[0]).view());
}

Value count(Interpreter& in, const Value& self, Args& args) {
  const Params p("count", args, {"value"}, 1);
  int64_t n = 0;
  in.budget().charge(int64_t(self.list()->items.size()));
  for (const Value& v : self.list()->items) n += equal(v, *p[0], in.budget()) ? 1 : 0;
  return n;
}

constexpr NamedMethod kDict[] = {{"get", get},       {"items", items}, {"keys", keys},
                                 {"values", values}, {"copy", copy},   {"fromkeys", fromkeys}};
constexpr NamedMethod kList[] = {{"index", index}, {"count", count}, {"copy", copy}};
constexpr NamedMethod kTuple[] = {{"index", index}, {"count", count}};

}  // namespace
}  // namespace container_methods

MethodBody find_list_method(std::string_view name) {
  return find_in(container_methods::kList, name);
}
MethodBody find_tuple_method(std::string_view name) {
  return find_in(container_methods::kTuple, name);
}
MethodBody find_dict_method(std::string_view name) {
  return find_in(container_methods::kDict, name);
}

}  // namespace nibble::jinja
