// SPDX-License-Identifier: MIT
#include "quant/recipe.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace nibble {
namespace {

TEST(RecipeTest, NamesRoundTrip) {
  for (const Recipe r : {Recipe::bf16, Recipe::nvfp4}) EXPECT_EQ(parse_recipe(recipe_name(r)), r);
  EXPECT_THROW(parse_recipe("fp8"), UsageError);
}

TEST(ActivationsTest, NamesRoundTrip) {
  for (const Activations a : {Activations::none, Activations::int8, Activations::nvfp4}) {
    EXPECT_EQ(parse_activations(activations_name(a)), a);
  }
  EXPECT_EQ(parse_activations("none"), Activations::none);
  EXPECT_THROW(parse_activations("fp8"), UsageError);
}

}  // namespace
}  // namespace nibble
