// SPDX-License-Identifier: MIT
// What the parts of a matrix in NVFP4 are called, by whose file it is; docs/formats.md.
#pragma once
#include <span>
#include <string_view>

namespace nibble {

enum class Nvfp4Names { nibble, compressed_tensors, modelopt };

struct Nvfp4Form {
  Nvfp4Names names;
  // After the layer's name, without ".weight". `input`: what its inputs are scaled by; empty: none.
  std::string_view codes, scales, global, input;
  bool divisor;  // the global scale (and the inputs') is what values are divided by, not multiplied
  bool scalar;   // these have no dimension, where others have one of size 1
};
std::span<const Nvfp4Form> nvfp4_forms();
const Nvfp4Form& nvfp4_form(Nvfp4Names names);

}  // namespace nibble
