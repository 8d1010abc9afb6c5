// SPDX-License-Identifier: MIT
// The random streams of gradients: one for each place, below the bits that say when.
#include "model/grads.h"

#include <gtest/gtest.h>

#include <set>

namespace nibble::test {
namespace {

constexpr int kSlots = int(ParamSlot::qkv_bias) + 1;

TEST(GradStream, EverySlotOfEveryLayerHasItsOwn) {
  constexpr int64_t kLayers = 128;
  std::set<uint64_t> streams;
  GradStream g;
  for (const uint64_t when : {1, 2}) {
    g.base = when << 16;
    for (int64_t layer = -1; layer < kLayers; ++layer) {
      for (int slot = 0; slot < kSlots; ++slot) {
        const uint64_t stream = g.of(ParamSlot(slot), layer).stream;
        EXPECT_TRUE(streams.insert(stream).second) << "slot " << slot << " of layer " << layer;
        EXPECT_EQ(stream >> 16, when);  // no bit of it is touched
      }
    }
  }
}

TEST(GradStream, HandsOnSeedAndAccumulation) {
  GradStream g;
  g.seed = 17;
  EXPECT_EQ(g.of(ParamSlot::qkv, 0).seed, 17u);
  EXPECT_EQ(g.of(ParamSlot::qkv, 0).accumulate, Accumulate::no);
  g.accumulate = Accumulate::yes;
  EXPECT_EQ(g.of(ParamSlot::qkv, 0).accumulate, Accumulate::yes);
}

}  // namespace
}  // namespace nibble::test
