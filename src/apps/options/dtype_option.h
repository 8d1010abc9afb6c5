// SPDX-License-Identifier: MIT
// --dtype: a floating-point type under all the names people use.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace nibble {

inline std::vector<std::pair<std::string, std::optional<DType>>> dtype_names() {
  return {{"fp16", DType::f16},      {"bf16", DType::bf16},   {"fp32", DType::f32},
          {"float16", DType::f16},   {"half", DType::f16},    {"f16", DType::f16},
          {"bfloat16", DType::bf16}, {"float32", DType::f32}, {"f32", DType::f32}};
}

}  // namespace nibble
