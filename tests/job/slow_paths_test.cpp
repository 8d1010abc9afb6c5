// SPDX-License-Identifier: MIT
// Which settings leave the fast kernels, and what is said then.
#include "job/setup/slow_paths.h"

#include <gtest/gtest.h>

#include "support/text.h"

namespace nibble::test {
namespace {

// What is said on a CPU with products of bf16 pairs: only where they would be used.
TEST(SlowPaths, Bf16IsFasterOnSomeProcessors) {
  TrainSettings s;
  s.compute = DType::f32;
  s.recipe = Recipe::nvfp4;
  ASSERT_TRUE(faster_on_bf16_cpu(s));
  EXPECT_TRUE(contains(*faster_on_bf16_cpu(s), "--compute-dtype bf16"));
  s.compute = DType::bf16;
  EXPECT_FALSE(faster_on_bf16_cpu(s));
  s.compute = DType::f32, s.recipe = Recipe::bf16, s.master = DType::f32;
  EXPECT_FALSE(faster_on_bf16_cpu(s));
  s.master = DType::bf16;
  EXPECT_TRUE(faster_on_bf16_cpu(s));
}

// Which settings leave a GPU's tensor cores, and what the warning recommends.
TEST(SlowPaths, OneSixteenBitTypeForBothOperandsIsFast) {
  const auto settings = [](DType compute, DType master, Recipe recipe,
                           std::optional<Recipe> head = {}) {
    TrainSettings s;
    s.compute = compute;
    s.master = master;
    s.recipe = recipe;
    s.head_recipe = head;
    return s;
  };
  const auto slow = [&](const TrainSettings& s, const std::vector<std::string>& parts) {
    const auto why = slow_on_cuda(s);
    ASSERT_TRUE(why);
    for (const std::string& part : parts)
      EXPECT_TRUE(contains(*why, part)) << part << " in " << *why;
  };
  const auto nvfp4 = Recipe::nvfp4, dense = Recipe::bf16;
  const auto bf16 = DType::bf16, f16 = DType::f16, f32 = DType::f32;
  // The defaults on a GPU; packed weights take any 16-bit type, whatever the master.
  for (const DType compute : {bf16, f16}) {
    for (const DType master : {bf16, f32}) {
      EXPECT_FALSE(slow_on_cuda(settings(compute, master, nvfp4)));
    }
  }
  EXPECT_FALSE(slow_on_cuda(settings(bf16, bf16, dense)));
  EXPECT_FALSE(slow_on_cuda(settings(bf16, bf16, nvfp4, dense)));

  for (const Recipe recipe : {nvfp4, dense}) {
    slow(settings(f32, bf16, recipe), {"--compute-dtype fp32", "bf16, the default"});
  }
  slow(settings(bf16, f32, dense), {"--recipe bf16 with a master in f32", "linear layers and head",
                                    "--master-dtype bf16 uses them"});
  slow(settings(bf16, f32, nvfp4, dense), {"--head-recipe bf16", "products of the head"});
  slow(settings(bf16, f32, dense, nvfp4), {"--recipe bf16", "products of linear layers are"});
  slow(settings(f16, bf16, dense), {"activations in f16", "--compute-dtype bf16 uses them"});
}

}  // namespace
}  // namespace nibble::test
