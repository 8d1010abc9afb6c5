// SPDX-License-Identifier: MIT
// Functions every template can call, with the limits of the sandbox.
#include <ctime>

#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"
#include "tokenizer/unicode.h"

namespace nibble::jinja {
namespace globals {
namespace {

constexpr int64_t kLongestRange = 100'000;

class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step, int64_t count)
      : start_(start), stop_(stop), step_(step), count_(count) {}
  std::string type_name() const override { return "range"; }
  std::optional<int64_t> length(Interpreter&) override { return count_; }
  std::optional<Value> item(int64_t i) const override { return Value(start_ + i * step_); }
  bool sequence() const override { return true; }
  IteratorPtr iterate(const ObjectPtr&) override {
    return std::make_shared<Walk>(start_, step_, count_);
  }
  std::string repr(Interpreter&) const override {
    return step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                      : fmt::format("range({}, {}, {})", start_, stop_, step_);
  }

 private:
  class Walk final : public Iterator {
   public:
    Walk(int64_t start, int64_t step, int64_t count) : at_(start), step_(step), left_(count) {}
    bool next(Interpreter&, Value& out) override {
      if (left_-- <= 0) return false;
      out = at_;
      if (left_ > 0) at_ += step_;
      return true;
    }

   private:
    int64_t at_, step_, left_;
  };
  int64_t start_, stop_, step_, count_;
};

Value range(Interpreter&, Args args) {
  const Params p("range", args, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; ++i) {
    if (p[i] && p[i]->is_undefined()) raise_undefined(**p[i]->as<UndefinedPtr>());
  }
  const int64_t start = p[1] ? p.integer(0, 0) : 0;
  const int64_t stop = p[1] ? p.integer(1, 0) : p.integer(0, 0);
  const int64_t step = p.integer(2, 1);
  if (step == 0) raise("ValueError", "range() arg 3 must not be zero");
  uint64_t count = 0;  // differences of two int64 fit here, whichever way
  if (step > 0 && start < stop) {
    count = (uint64_t(stop) - uint64_t(start) - 1) / uint64_t(step) + 1;
  }
  if (step < 0 && start > stop) {
    count = (uint64_t(start) - uint64_t(stop) - 1) / (uint64_t(0) - uint64_t(step)) + 1;
  }
  if (count > uint64_t(kLongestRange)) {
    raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
          kLongestRange);
  }
  return ObjectPtr(std::make_shared<Range>(start, stop, step, int64_t(count)));
}

// dict(pairs or mapping, **named)
Value dict(Interpreter& in, Args args) {
  DictBuilder out(in.budget());
  if (args.positional.size() > 1) {
    raise("TypeError", "dict expected at most 1 argument, got {}", args.positional.size());
  }
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.dict()) {
      for (const auto& [k, v] : from.dict()->items) out.set(k, v);
    } else {
      size_t n = 0;
      for (const Value& pair : to_vector(in, from)) {
        const std::vector<Value> two = to_vector(in, pair);
        if (two.size() != 2) {
          raise("ValueError", "dictionary update sequence element #{} has length {}; 2 is required",
                n, two.size());
        }
        out.set(two[0], two[1]);
        ++n;
      }
    }
  }
  for (auto& [k, v] : args.named) out.set(written(k), std::move(v));
  return out.take();
}

Value make_namespace(Interpreter& in, Args args) {
  const auto ns = std::make_shared<Namespace>();
  in.keep(ns);
  const Value members = dict(in, std::move(args));
  for (const auto& [k, v] : members.dict()->items) {
    if (k.text()) ns->set(k.text()->view(), v);
  }
  return ObjectPtr(ns);
}

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::string type_path() const override { return "jinja2.utils.Cycler"; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    if (name == "current") return items_[*at_];
    if (name == "next") {
      return function([items = items_, at = at_](Interpreter&, Args) {
        const Value v = items[*at];
        *at = (*at + 1) % items.size();
        return v;
      });
    }
    if (name == "reset") {
      return function([at = at_](Interpreter&, Args) {
        *at = 0;
        return Value();
      });
    }
    return std::nullopt;
  }

 private:
  static Value function(Function::Body body) {
    return ObjectPtr(std::make_shared<Function>("method", std::move(body)));
  }
  std::vector<Value> items_;
  std::shared_ptr<size_t> at_ = std::make_shared<size_t>(0);
};

Value cycler(Interpreter&, Args args) {
  if (args.positional.empty()) raise("RuntimeError", "at least one item has to be provided");
  return ObjectPtr(std::make_shared<Cycler>(std::move(args.positional)));
}

Value joiner(Interpreter&, Args args) {
  const Params p("joiner", args, {"sep"});
  const Value separator = p.value(0, written(", "));
  auto used = std::make_shared<bool>(false);
  return ObjectPtr(
      std::make_shared<Function>("Joiner", [separator, used](Interpreter&, Args) -> Value {
        return std::exchange(*used, true) ? separator : Value(Text());
      }));
}

Value raise_exception(Interpreter& in, Args args) {
  const Params p("raise_exception", args, {"message"}, 1);
  throw Raised("TemplateError", std::string(in.text_of(*p[0]).view()));
}

Value strftime_now(Interpreter& in, Args args) {
  const Params p("strftime_now", args, {"format"}, 1);
  const std::string format(p.text(0).view());
  if (format.empty()) return Text();
  if (format.size() > 1000) raise("ValueError", "strftime_now: the format is too long");
  std::string out(format.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &in.now()));
  return Text(repair_utf8(out), p.text(0).origin_at(0));
}

Value lipsum(Interpreter&, Args) {
  raise("NotImplementedError", "a rendering is not left to chance: there is no lipsum");
}

struct NamedFunction {
  const char* name;
  const char* type;
  Value (*body)(Interpreter&, Args);
};
constexpr NamedFunction kFunctions[] = {
    {"range", "function", range},
    {"dict", "type", dict},
    {"namespace", "type", make_namespace},
    {"cycler", "type", cycler},
    {"joiner", "type", joiner},
    {"lipsum", "function", lipsum},
    {"raise_exception", "function", raise_exception},
    {"strftime_now", "function", strftime_now},
};

}  // namespace
}  // namespace globals

Value global_function(std::string_view name) {
  for (const globals::NamedFunction& f : globals::kFunctions) {
    if (name == f.name) return ObjectPtr(std::make_shared<Function>(f.type, f.body));
  }
  return None{};
}

}  // namespace nibble::jinja
