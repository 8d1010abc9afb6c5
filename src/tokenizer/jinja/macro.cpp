// SPDX-License-Identifier: MIT
// {% macro %} and {% call %}.
#include <algorithm>

#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/levels.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {
namespace {

class Macro final : public Object {
 public:
  Macro(std::shared_ptr<MacroParts> parts, ScopePtr around)
      : parts_(std::move(parts)), around_(std::move(around)) {}

  std::string type_name() const override { return "Macro"; }
  std::string type_path() const override { return "jinja2.runtime.Macro"; }
  std::string repr(Interpreter&) const override { return "<Macro " + shown() + ">"; }
  bool callable() const override { return true; }

  std::optional<Value> attribute(Interpreter& in, std::string_view name) override {
    if (name == "name") return parts_->name.empty() ? Value() : written(parts_->name);
    if (name == "arguments") {
      std::vector<Value> names;
      for (const Symbol s : parts_->params) names.push_back(written(in.symbols().name(s)));
      return make_list(std::move(names), in.budget(), true);
    }
    if (name == "caller") return Value(parts_->uses_caller);
    if (name == "catch_kwargs") return Value(parts_->uses_kwargs);
    if (name == "catch_varargs") return Value(parts_->uses_varargs);
    return std::nullopt;
  }

  Value call(Interpreter& in, Args args) override {
    const size_t n = parts_->params.size();
    std::vector<std::optional<Value>> given(n);
    for (size_t i = 0; i < std::min(n, args.positional.size()); ++i) given[i] = args.positional[i];
    for (size_t i = args.positional.size(); i < n; ++i) {
      given[i] = take_named(args, in.symbols().name(parts_->params[i]));
    }
    const Symbol caller = in.symbols().find("caller");
    const bool explicit_caller =
        std::find(parts_->params.begin(), parts_->params.end(), caller) != parts_->params.end();
    std::optional<Value> caller_value;
    if (parts_->uses_caller && !explicit_caller) {
      caller_value = take_named(args, "caller");
      if (!caller_value || caller_value->is_none()) caller_value = undefined("No caller defined");
    }
    if (!parts_->uses_kwargs && !args.named.empty()) {
      raise("TypeError", "macro {} takes no keyword argument {}", shown(),
            in_quotes(args.named[0].first));
    }
    if (!parts_->uses_varargs && args.positional.size() > n) {
      raise("TypeError", "macro {} takes not more than {} argument(s)", shown(), n);
    }
    return in.run_macro(*parts_, around_, [&](Scope& scope) {
      if (caller_value) scope.set(caller, *caller_value);
      if (parts_->uses_kwargs) {
        DictBuilder kwargs(in.budget());
        for (auto& [k, v] : args.named) kwargs.set(written(k), std::move(v));
        scope.set(in.symbols().find("kwargs"), kwargs.take());
      }
      if (parts_->uses_varargs) {
        std::vector<Value> rest;
        for (size_t i = n; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
        scope.set(in.symbols().find("varargs"), make_list(std::move(rest), in.budget(), true));
      }
      // Defaults are evaluated anew at each call and see the parameters before them.
      const size_t first_default = n - parts_->defaults.size();
      for (size_t i = 0; i < n; ++i) {
        Value v;
        if (given[i]) {
          v = *given[i];
        } else if (i >= first_default) {
          v = in.eval(*parts_->defaults[i - first_default]);
        } else {
          v = undefined(fmt::format("parameter {} was not provided",
                                    in_quotes(in.symbols().name(parts_->params[i]))));
        }
        scope.set(parts_->params[i], std::move(v));
      }
    });
  }

 private:
  std::string shown() const { return parts_->name.empty() ? "None" : in_quotes(parts_->name); }
  static std::optional<Value> take_named(Args& args, std::string_view name) {
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first != name) continue;
      Value v = std::move(args.named[i].second);
      args.named.erase(args.named.begin() + std::ptrdiff_t(i));
      return v;
    }
    return std::nullopt;
  }

  std::shared_ptr<MacroParts> parts_;
  ScopePtr around_;
};

}  // namespace

Value make_macro(Interpreter& in, std::shared_ptr<MacroParts> parts) {
  in.keep(in.scope());
  return ObjectPtr(std::make_shared<Macro>(std::move(parts), in.scope()));
}

Text Interpreter::run_macro(const MacroParts& parts, const ScopePtr& around,
                            const std::function<void(Scope&)>& bind) {
  const Level level(*this);
  const auto scope = std::make_shared<Scope>(around);
  const WithScope inner(*this, scope);
  bind(*scope);
  return captured([&] { run(parts.body); });
}

}  // namespace nibble::jinja
