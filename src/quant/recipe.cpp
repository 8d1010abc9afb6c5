// SPDX-License-Identifier: MIT
#include "quant/recipe.h"

#include "core/error.h"

namespace nibble {

std::string_view recipe_name(Recipe recipe) {
  switch (recipe) {
    case Recipe::bf16: return "bf16";
    case Recipe::nvfp4: return "nvfp4";
  }
  throw_internal("recipe {}", int(recipe));
}

std::string_view activations_name(Activations activations) {
  switch (activations) {
    case Activations::none: return "bf16";
    case Activations::int8: return "int8";
    case Activations::nvfp4: return "nvfp4";
  }
  throw_internal("activations {}", int(activations));
}

}  // namespace nibble
