// SPDX-License-Identifier: MIT
// Names that checkpoints and traces hold.
#include "quant/recipe.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(RecipeTest, NamesStay) {
  EXPECT_EQ(recipe_name(Recipe::bf16), "bf16");
  EXPECT_EQ(recipe_name(Recipe::nvfp4), "nvfp4");
}

TEST(ActivationsTest, NamesStay) {
  EXPECT_EQ(activations_name(Activations::none), "bf16");
  EXPECT_EQ(activations_name(Activations::int8), "int8");
  EXPECT_EQ(activations_name(Activations::nvfp4), "nvfp4");
}

}  // namespace
}  // namespace nibble
