// SPDX-License-Identifier: MIT
#include "tokenizer/jinja/builtins/builtins.h"
#include "tokenizer/jinja/spell.h"

namespace nibble::jinja {

Params::Params(const char* function, Args& args, std::initializer_list<const char*> names,
               size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (args.positional.size() > names.size()) {
    raise("TypeError", "{}() takes at most {} arguments ({} given)", function, names.size(),
          args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, v] : args.named) {
    size_t i = 0;
    for (const char* n : names) {
      if (name == n) break;
      ++i;
    }
    if (i == names.size()) {
      raise("TypeError", "{}() got an unexpected keyword argument {}", function, in_quotes(name));
    }
    if (values_[i]) {
      raise("TypeError", "{}() got multiple values for argument {}", function, in_quotes(name));
    }
    values_[i] = &v;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      raise("TypeError", "{}() missing 1 required positional argument: '{}'", function,
            *(names.begin() + i));
    }
  }
}

int64_t Params::integer(size_t i, int64_t otherwise) const {
  if (!values_[i]) return otherwise;
  if (const auto v = values_[i]->integer()) return *v;
  raise("TypeError", "'{}' object cannot be interpreted as an integer", type_name(*values_[i]));
}

bool Params::flag(size_t i, bool otherwise, Interpreter& in) const {
  return values_[i] ? truth(*values_[i], in) : otherwise;
}

const Text& Params::text(size_t i) const {
  if (!values_[i] || !values_[i]->text()) {
    raise("TypeError", "{}() argument {} must be str, not {}", function_, i + 1,
          values_[i] ? type_name(*values_[i]) : "nothing");
  }
  return *values_[i]->text();
}

Text soft_text(Interpreter& in, const Value& v) { return in.text_of(v); }

}  // namespace nibble::jinja
