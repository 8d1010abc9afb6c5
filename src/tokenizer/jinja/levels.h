// SPDX-License-Identifier: MIT
// How deep expressions, statements, calls, values and generators stand in each other: bounded,
// because each level is a few frames of the machine's stack.
#pragma once
#include "tokenizer/jinja/interpreter.h"

namespace nibble::jinja {

struct Interpreter::Level {
  explicit Level(Interpreter& in) : in(in) {
    if (++in.depth_ > in.budget_.limits().depth) {
      --in.depth_;
      raise("RecursionError", "maximum recursion depth exceeded while calling a Python object");
    }
  }
  ~Level() { --in.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  Interpreter& in;
};

}  // namespace nibble::jinja
