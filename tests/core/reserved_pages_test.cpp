// SPDX-License-Identifier: MIT
// Addresses without memory, pages that are given back, and pages seen at two addresses.
#include "core/memory/reserved_pages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"

namespace nibble::test {
namespace {

TEST(ReservedPages, AreThereWhenTheyAreWritten) {
  const size_t page = page_bytes();
  ReservedPages p(size_t(1) << 40, "a terabyte");
  EXPECT_EQ(p.used_bytes(), 0u);
  p.data()[5 * page] = std::byte{1};
  p.data()[7 * page + 3] = std::byte{2};
  EXPECT_EQ(p.used_bytes(), 2 * page);
  p.give_back(5 * page, page);
  EXPECT_EQ(p.used_bytes(), page);
  EXPECT_EQ(p.data()[5 * page], std::byte{0});
  EXPECT_EQ(p.data()[7 * page + 3], std::byte{2});
}

TEST(ReservedPages, AreSeenAtTwoAddresses) {
  const size_t page = page_bytes();
  ReservedPages p(8 * page, "pages");
  std::memset(p.data(), 1, 2 * page);
  std::memset(p.data() + 4 * page, 4, 2 * page);
  p.show(4 * page, 0, 2 * page);
  EXPECT_EQ(p.data()[4 * page], std::byte{1});
  EXPECT_EQ(p.used_bytes(), 4 * page);  // what was there is still there, by its name
  p.data()[5 * page] = std::byte{9};
  EXPECT_EQ(p.data()[page], std::byte{9});
  p.give_back(4 * page, 2 * page);
  EXPECT_EQ(p.data()[5 * page], std::byte{9});
  EXPECT_EQ(p.used_bytes(), 2 * page);
  p.show(4 * page, 4 * page, 2 * page);
  EXPECT_EQ(p.data()[4 * page], std::byte{0});
  EXPECT_EQ(p.data()[page], std::byte{9});
}

TEST(ReservedPages, WhatIsNoPageOfTheirsIsRefused) {
  const size_t page = page_bytes();
  ReservedPages p(4 * page, "pages");
  EXPECT_THROW(p.show(0, 3 * page, 2 * page), Error);
  EXPECT_THROW(p.show(1, 0, page), Error);
  EXPECT_THROW(p.give_back(0, 5 * page), Error);
  EXPECT_THROW(p.give_back(0, page / 2), Error);
  EXPECT_THROW(ReservedPages(size_t(1) << 60, "an exabyte"), DeviceError);
}

}  // namespace
}  // namespace nibble::test
