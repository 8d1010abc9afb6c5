// SPDX-License-Identifier: MIT
// Precision as values: what a linear layer's weight and input are rounded to before the product.
#pragma once
#include <string_view>

namespace nibble {

// Weights in the forward and backward of a linear layer.
enum class Recipe { bf16, nvfp4 };
// Inputs of a linear layer at inference; none: they stay in the compute dtype.
enum class Activations { none, int8, nvfp4 };

std::string_view recipe_name(Recipe recipe);
std::string_view activations_name(Activations activations);

}  // namespace nibble
