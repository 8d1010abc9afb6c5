// SPDX-License-Identifier: MIT
#include "quant/swizzle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nibble {
namespace {

TEST(Swizzle, PlacesBytesOfATile) {
  // Hand-computed from (r % 32) * 16 + (r / 32) * 4 + c.
  EXPECT_EQ(swizzled_scale_index(0, 0, 4), 0u);
  EXPECT_EQ(swizzled_scale_index(0, 3, 4), 3u);
  EXPECT_EQ(swizzled_scale_index(1, 0, 4), 16u);
  EXPECT_EQ(swizzled_scale_index(32, 0, 4), 4u);
  EXPECT_EQ(swizzled_scale_index(127, 3, 4), 31u * 16 + 15);
  EXPECT_EQ(swizzled_scale_index(0, 4, 8), 512u) << "tiles run along a row first";
  EXPECT_EQ(swizzled_scale_index(128, 0, 8), 1024u);
  EXPECT_EQ(swizzled_scale_index(128, 0, 5), 1024u) << "five columns are two tiles";
}

TEST(Swizzle, EveryScaleHasAPlaceOfItsOwnInWholeTiles) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {128, 4}, {129, 5}, {64, 160}, {300, 7}, {0, 4}}) {
    std::vector<uint8_t> taken(swizzled_scale_bytes(rows, cols));
    EXPECT_EQ(taken.size(), size_t((rows + 127) / 128 * ((cols + 3) / 4)) * 512);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) ++taken.at(swizzled_scale_index(r, c, cols));
    }
    EXPECT_EQ(std::ranges::count(taken, 1), rows * cols);
  }
}

}  // namespace
}  // namespace nibble
