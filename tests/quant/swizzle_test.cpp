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

TEST(Swizzle, RoundTripsAndPadsWithZeros) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {128, 4}, {129, 5}, {64, 160}, {300, 7}, {0, 4}}) {
    std::vector<uint8_t> in(size_t(rows * cols));
    for (size_t i = 0; i < in.size(); ++i) in[i] = uint8_t(i % 255 + 1);  // never 0
    std::vector<uint8_t> swizzled(swizzled_scale_bytes(rows, cols), 0xee), out(in.size());
    EXPECT_EQ(swizzled.size(), size_t((rows + 127) / 128 * ((cols + 3) / 4)) * 512);
    swizzle_scales(in.data(), rows, cols, swizzled.data());
    unswizzle_scales(swizzled.data(), rows, cols, out.data());
    EXPECT_EQ(in, out);
    const auto zeros = std::count(swizzled.begin(), swizzled.end(), uint8_t(0));
    EXPECT_EQ(size_t(zeros), swizzled.size() - in.size()) << "every other byte is padding";
  }
}

}  // namespace
}  // namespace nibble
