// SPDX-License-Identifier: MIT
#include "quant/recipe.h"

#include "core/error.h"

namespace nibble {

Recipe parse_recipe(std::string_view name) {
  if (name == "bf16") return Recipe::bf16;
  if (name == "nvfp4") return Recipe::nvfp4;
  throw_usage("unknown recipe '{}': use bf16 or nvfp4", name);
}

std::string_view recipe_name(Recipe recipe) {
  switch (recipe) {
    case Recipe::bf16: return "bf16";
    case Recipe::nvfp4: return "nvfp4";
  }
  throw_internal("recipe {}", int(recipe));
}

Activations parse_activations(std::string_view name) {
  if (name == "none" || name == "bf16") return Activations::none;
  if (name == "int8") return Activations::int8;
  if (name == "nvfp4") return Activations::nvfp4;
  throw_usage("unknown activation format '{}': use bf16, int8 or nvfp4", name);
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
