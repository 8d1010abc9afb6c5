// SPDX-License-Identifier: MIT
// What one rendering may cost. A template is text from outside: it must come to an end, and in
// memory that is there.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tokenizer/jinja/error.h"

namespace nibble::jinja {

struct Limits {
  int64_t steps = 50'000'000;            // expressions, statements, elements, 16 bytes of text each
  size_t text_bytes = size_t(64) << 20;  // of any one string, the rendering included
  int depth = 900;                       // of expressions, statements and macro calls, nested
  int nesting = 100;                     // of lists and dicts in each other
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  const Limits& limits() const { return limits_; }

  void charge(int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ < 0) {
      raise("LimitError", "the template takes more than {} steps", limits_.steps);
    }
  }
  void charge_text(size_t bytes) { charge(int64_t(bytes / 16) + 1); }
  // A string of so many bytes is about to be made.
  void check_text(size_t bytes) const {
    if (bytes > limits_.text_bytes) {
      raise("LimitError", "the template makes a text of more than {} bytes", limits_.text_bytes);
    }
  }

 private:
  Limits limits_;
  int64_t steps_left_;
};

}  // namespace nibble::jinja
