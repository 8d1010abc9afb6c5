// SPDX-License-Identifier: MIT
// Filters that go element by element, lazily: map, select, reject, unique, items.
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace filters_select {
namespace {

using Step = std::function<std::optional<Value>(Interpreter&, const Value&)>;

// Reads on until a step keeps an element. The source is first touched when the first one is asked
// for, as with a Python generator.
class StepIterator final : public Iterator {
 public:
  StepIterator(Value source, Step step) : source_(std::move(source)), step_(std::move(step)) {}
  bool next(Interpreter& in, Value& out) override {
    const Interpreter::Level level(in);  // a generator may read from a generator that reads from...
    if (done_) return false;
    if (!from_) {
      if (!truth(source_, in)) return !(done_ = true);
      from_ = iterate(in, source_);
    }
    for (Value item; from_->next(in, item);) {
      in.budget().charge(1);
      if (auto v = step_(in, item)) {
        out = std::move(*v);
        return true;
      }
    }
    done_ = true;
    return false;
  }

 private:
  Value source_;
  Step step_;
  IteratorPtr from_;
  bool done_ = false;
};

Value lazily(const Value& source, Step step) {
  return ObjectPtr(
      std::make_shared<Generator>(std::make_shared<StepIterator>(source, std::move(step))));
}

std::vector<Value> behind(const std::vector<Value>& all, size_t n) {
  return {all.begin() + std::ptrdiff_t(std::min(n, all.size())), all.end()};
}

Value map(Interpreter& in, const Value& v, Args& args) {
  if (args.positional.empty()) {
    std::optional<Value> attribute, fallback;
    for (const auto& [name, value] : args.named) {
      if (name == "attribute")
        attribute = value;
      else if (name == "default")
        fallback = value;
      else
        raise("FilterArgumentError", "Unexpected keyword argument {}", in_quotes(name));
    }
    if (!attribute) raise("FilterArgumentError", "map requires a filter argument");
    return lazily(v, [a = *attribute, fallback](Interpreter& i, const Value& item) {
      const Value* otherwise = fallback && !fallback->is_none() ? &*fallback : nullptr;
      return std::optional(attribute_path(i, item, a, otherwise));
    });
  }
  if (!args.positional[0].text()) {
    raise("TemplateRuntimeError", "No filter named {}.", plain_repr(args.positional[0]));
  }
  const std::string name(args.positional[0].text()->view());
  if (!is_filter(name)) raise("TemplateRuntimeError", "No filter named {}.", in_quotes(name));
  (void)in;
  const Args rest{behind(args.positional, 1), args.named};
  return lazily(v, [name, rest](Interpreter& i, const Value& item) {
    return std::optional(i.apply_filter(name, item, rest));
  });
}

Value select_or_reject(const Value& v, Args& args, bool keep, bool by_attribute) {
  if (by_attribute && args.positional.empty()) {
    raise("FilterArgumentError", "Missing parameter for attribute name");
  }
  const Value path = by_attribute ? args.positional[0] : Value();
  const size_t used = by_attribute ? 1 : 0;
  std::string test;
  if (args.positional.size() > used) {
    const Value& t = args.positional[used];
    if (!t.text() || !is_test(t.text()->view())) {
      raise("TemplateRuntimeError", "No test named {}.", plain_repr(t));
    }
    test = t.text()->view();
  }
  const Args rest{behind(args.positional, used + 1), args.named};
  return lazily(v, [=](Interpreter& in, const Value& item) -> std::optional<Value> {
    const Value asked = attribute_path(in, item, path);
    const bool passes = test.empty() ? truth(asked, in) : in.apply_test(test, asked, rest);
    return passes == keep ? std::optional(item) : std::nullopt;
  });
}

Value select(Interpreter&, const Value& v, Args& args) {
  return select_or_reject(v, args, true, false);
}
Value reject(Interpreter&, const Value& v, Args& args) {
  return select_or_reject(v, args, false, false);
}
Value selectattr(Interpreter&, const Value& v, Args& args) {
  return select_or_reject(v, args, true, true);
}
Value rejectattr(Interpreter&, const Value& v, Args& args) {
  return select_or_reject(v, args, false, true);
}

Value unique(Interpreter& in, const Value& v, Args& args) {
  const Params p("unique", args, {"case_sensitive", "attribute"});
  const bool cased = p.flag(0, false, in);
  const Value path = p.value(1, None{});
  auto seen = std::make_shared<std::vector<Value>>();
  return lazily(v, [=](Interpreter& i, const Value& item) -> std::optional<Value> {
    Value key = sort_key(i, attribute_path(i, item, path), cased);
    if (!hashable(key, i.budget())) {
      raise("TypeError", "unhashable type: '{}'", type_name(key));
    }
    i.budget().charge(int64_t(seen->size()));
    for (const Value& s : *seen) {
      if (equal(s, key, i.budget())) return std::nullopt;
    }
    seen->push_back(std::move(key));
    return item;
  });
}

Value items(Interpreter& in, const Value& v, Args& args) {
  Params("items", args, {});
  (void)in;
  // Python's complaint comes when the pairs are asked for.
  const Value keys = v.dict() ? v : v.is_undefined() ? v : make_list({v}, in.budget());
  return lazily(keys, [v](Interpreter& i, const Value& key) -> std::optional<Value> {
    if (!v.dict()) raise("TypeError", "Can only get item pairs from a mapping.");
    return make_list({key, *v.dict()->find(key, i.budget())}, i.budget(), true);
  });
}

constexpr NamedFilter kFilters[] = {
    {"map", map},
    {"select", select},
    {"reject", reject},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"unique", unique},
    {"items", items},
};

}  // namespace
}  // namespace filters_select

FilterBody find_select_filter(std::string_view name) {
  return find_in(filters_select::kFilters, name);
}

// "a.b.0": members of members, whole numbers as such.
Value attribute_path(Interpreter& in, Value v, const Value& path, const Value* otherwise) {
  if (path.is_none()) return v;
  const auto step = [&](const Value& key) {
    v = in.item(v, key);
    if (otherwise && v.is_undefined()) v = *otherwise;
  };
  if (!path.text()) {
    step(path);
    return v;
  }
  std::string_view rest = path.text()->view();
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool digits =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    step(digits ? Value(int64_t(std::stoll(std::string(part)))) : written(part));
    if (dot == rest.size()) return v;
    rest.remove_prefix(dot + 1);
  }
}

Value sort_key(Interpreter& in, const Value& v, bool case_sensitive) {
  return v.text() && !case_sensitive ? Value(lower(in.budget(), *v.text())) : v;
}

}  // namespace nibble::jinja
