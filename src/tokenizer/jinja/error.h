// SPDX-License-Identifier: MIT
// How a template fails: with the name and the words Python's jinja2 would use, and where.
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace nibble::jinja {

struct Position {
  int line = 0, column = 0;  // from 1; column counts bytes; 0: not known
};

// Thrown inside this folder; template.cpp turns it into a TemplateError for the rest of nibble.
class Raised : public std::exception {
 public:
  Raised(std::string kind, std::string reason, Position at = {})
      : kind_(std::move(kind)), reason_(std::move(reason)), at_(at) {}
  const char* what() const noexcept override { return reason_.c_str(); }
  const std::string& kind() const { return kind_; }
  const std::string& reason() const { return reason_; }
  Position at() const { return at_; }
  void set_at(Position at) {
    if (at_.line == 0) at_ = at;
  }

 private:
  std::string kind_, reason_;
  Position at_;
};

// raise("TypeError", "'{}' object is not iterable", type)
template <class... Args>
[[noreturn]] void raise(const char* kind, fmt::format_string<Args...> f, Args&&... args) {
  throw Raised(kind, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void raise_at(Position at, const char* kind, fmt::format_string<Args...> f,
                           Args&&... args) {
  throw Raised(kind, fmt::format(f, std::forward<Args>(args)...), at);
}

}  // namespace nibble::jinja
