// SPDX-License-Identifier: MIT
// How large the inputs of linear layers become on a text: what fixed scales of them are made of.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "runtime/runtime.h"

namespace nibble {

// The largest magnitude each linear layer of the blocks is given, by the name of its weight, over
// all windows of `window` ids (a shorter rest, too).
std::map<std::string, float> input_maxima(Runtime& runtime, std::span<const int64_t> ids,
                                          int64_t window);

}  // namespace nibble
