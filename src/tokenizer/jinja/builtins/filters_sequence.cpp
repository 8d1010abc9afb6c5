// SPDX-License-Identifier: MIT
// Filters over lists: order, size, parts. filters_select.cpp has those that go element by element.
#include <algorithm>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace filters_sequence {
namespace {

Value length_filter(Interpreter& in, const Value& v, Args& args) {
  Params("len", args, {});
  return length(in, v);
}

Value list(Interpreter& in, const Value& v, Args& args) {
  Params("list", args, {});
  return make_list(to_vector(in, v), in.budget());
}

Value first(Interpreter& in, const Value& v, Args& args) {
  Params("first", args, {});
  Value out;
  return iterate(in, v)->next(in, out) ? out : undefined("No first item, sequence was empty.");
}

// Elements from the last on; raises for what Python cannot reverse.
std::vector<Value> backwards(Interpreter& in, const Value& v) {
  if (v.is_undefined()) return {};
  if (v.object() && !v.object()->sequence() && v.object()->type_name().rfind("dict_", 0) != 0) {
    raise("TypeError", "'{}' object is not reversible", type_name(v));
  }
  if (!v.object() && !v.list() && !v.dict() && !v.text()) {
    raise("TypeError", "'{}' object is not reversible", type_name(v));
  }
  std::vector<Value> all = to_vector(in, v);
  std::reverse(all.begin(), all.end());
  return all;
}

Value last(Interpreter& in, const Value& v, Args& args) {
  Params("last", args, {});
  const std::vector<Value> all = backwards(in, v);
  return all.empty() ? undefined("No last item, sequence was empty.") : all[0];
}

Value reverse(Interpreter& in, const Value& v, Args& args) {
  Params("reverse", args, {});
  if (v.text()) return slice(in, v, std::nullopt, std::nullopt, Value(int64_t(-1)));
  if (v.object() && !v.object()->sequence()) {
    std::vector<Value> all = to_vector(in, v);
    std::reverse(all.begin(), all.end());
    return make_list(std::move(all), in.budget());
  }
  if (!v.list() && !v.dict() && !v.object() && !v.is_undefined()) {
    raise("FilterArgumentError", "argument must be iterable");
  }
  return ObjectPtr(std::make_shared<Generator>(
      vector_iterator(backwards(in, v)),
      v.list() && !v.list()->tuple ? "list_reverseiterator" : "reversed"));
}

// Stable, by keys that are made once.
std::vector<Value> sorted(Interpreter& in, std::vector<std::pair<Value, Value>> keyed,
                          bool descending) {
  in.budget().charge(int64_t(keyed.size()) * 8);
  const auto before = [&](const auto& a, const auto& b) {
    return descending ? less(b.first, a.first, in.budget()) : less(a.first, b.first, in.budget());
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  std::vector<Value> out;
  for (auto& [k, v] : keyed) out.push_back(std::move(v));
  return out;
}

Value sort(Interpreter& in, const Value& v, Args& args) {
  const Params p("sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool cased = p.flag(1, false, in);
  std::vector<Value> paths = {None{}};
  if (p.given(2)) {
    paths = {*p[2]};
    if (p[2]->text()) {
      Args comma;
      comma.positional = {written(",")};
      paths = in.call(in.member(*p[2], written("split")), comma).list()->items;
    }
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(in, v)) {
    std::vector<Value> keys;
    for (const Value& path : paths) {
      keys.push_back(sort_key(in, attribute_path(in, item, path), cased));
    }
    keyed.emplace_back(make_list(std::move(keys), in.budget()), std::move(item));
  }
  return make_list(sorted(in, std::move(keyed), p.flag(0, false, in)), in.budget());
}

Value dictsort(Interpreter& in, const Value& v, Args& args) {
  const Params p("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = p[1] ? p.text(1).view() : "key";
  if (by != "key" && by != "value") {
    raise("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  }
  if (!v.dict()) {
    if (v.is_undefined()) raise_undefined(**v.as<UndefinedPtr>());
    raise("AttributeError", "'{}' object has no attribute 'items'", type_name(v));
  }
  const bool cased = p.flag(0, false, in);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [k, value] : v.dict()->items) {
    keyed.emplace_back(sort_key(in, by == "key" ? k : value, cased),
                       make_list({k, value}, in.budget(), true));
  }
  return make_list(sorted(in, std::move(keyed), p.flag(2, false, in)), in.budget());
}

Value extreme(Interpreter& in, const Value& v, Args& args, bool largest) {
  const Params p(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const bool cased = p.flag(0, false, in);
  const Value path = p.value(1, None{});
  const IteratorPtr it = iterate(in, v);
  std::optional<Value> best, best_key;
  for (Value item; it->next(in, item);) {
    in.budget().charge(1);
    const Value key = sort_key(in, attribute_path(in, item, path), cased);
    if (!best ||
        (largest ? less(*best_key, key, in.budget(), ">") : less(key, *best_key, in.budget()))) {
      best = item;
      best_key = key;
    }
  }
  return best ? *best : undefined("No aggregated item, sequence was empty.");
}
Value min(Interpreter& in, const Value& v, Args& args) { return extreme(in, v, args, false); }
Value max(Interpreter& in, const Value& v, Args& args) { return extreme(in, v, args, true); }

Value sum(Interpreter& in, const Value& v, Args& args) {
  const Params p("sum", args, {"attribute", "start"});
  Value total = p.value(1, int64_t(0));
  if (total.text()) raise("TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
  const IteratorPtr it = iterate(in, v);
  for (Value item; it->next(in, item);) {
    total = binary_operator(in, "+", total, attribute_path(in, item, p.value(0, None{})));
  }
  return total;
}

Value batch(Interpreter& in, const Value& v, Args& args) {
  const Params p("batch", args, {"linecount", "fill_with"}, 1);
  const int64_t n = p.integer(0, 1);
  std::vector<Value> out, line;
  const auto flush = [&] { out.push_back(make_list(std::move(line), in.budget())); };
  for (Value& item : to_vector(in, v)) {
    if (int64_t(line.size()) == n) {
      flush();
      line.clear();
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (p.given(1)) {
      in.budget().charge(std::max<int64_t>(n, 0));
      while (int64_t(line.size()) < n) line.push_back(*p[1]);
    }
    flush();
  }
  return ObjectPtr(std::make_shared<Generator>(vector_iterator(std::move(out))));
}

Value slice_filter(Interpreter& in, const Value& v, Args& args) {
  const Params p("slice", args, {"slices", "fill_with"}, 1);
  const std::vector<Value> all = to_vector(in, v);
  const auto n = int64_t(all.size());
  const int64_t slices = p.integer(0, 1);
  if (slices <= 0) raise("ZeroDivisionError", "integer division or modulo by zero");
  in.budget().charge(slices);
  std::vector<Value> out;
  const int64_t each = n / slices, longer = n % slices;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = each + (i < longer ? 1 : 0);
    std::vector<Value> part(all.begin() + at, all.begin() + at + count);
    at += count;
    if (p.given(1) && i >= longer && longer > 0) part.push_back(*p[1]);
    out.push_back(make_list(std::move(part), in.budget()));
  }
  return ObjectPtr(std::make_shared<Generator>(vector_iterator(std::move(out))));
}

// (grouper, list) pairs in the order of their keys.
Value groupby(Interpreter& in, const Value& v, Args& args) {
  const Params p("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool cased = p.flag(2, false, in);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(in, v)) {
    Value key = attribute_path(in, item, *p[0], p[1]);
    keyed.emplace_back(sort_key(in, key, cased), make_list({key, item}, in.budget(), true));
  }
  std::vector<Value> out, group;
  Value group_key, group_name;
  const auto flush = [&] {
    if (group.empty()) return;
    out.push_back(
        make_list({group_name, make_list(std::move(group), in.budget())}, in.budget(), true));
    group.clear();
  };
  for (const Value& pair : sorted(in, std::move(keyed), false)) {
    const Value key = sort_key(in, pair.list()->items[0], cased);
    if (group.empty() || !equal(key, group_key, in.budget())) {
      flush();
      group_key = key;
      group_name = pair.list()->items[0];
    }
    group.push_back(pair.list()->items[1]);
  }
  flush();
  return make_list(std::move(out), in.budget());
}

Value random(Interpreter&, const Value&, Args&) {
  raise("NotImplementedError", "a rendering is not left to chance: there is no filter random");
}

constexpr NamedFilter kFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"list", list},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"sort", sort},
    {"dictsort", dictsort},
    {"min", min},
    {"max", max},
    {"sum", sum},
    {"batch", batch},
    {"slice", slice_filter},
    {"groupby", groupby},
    {"random", random},
};

}  // namespace
}  // namespace filters_sequence

FilterBody find_sequence_filter(std::string_view name) {
  return find_in(filters_sequence::kFilters, name);
}

}  // namespace nibble::jinja
