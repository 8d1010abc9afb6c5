// SPDX-License-Identifier: MIT
// Blocks that sequences share, on a memory of numbers: whatever happens, each sequence reads what
// it wrote, and no block is there that nobody holds.
#include "generate/cache_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "core/rng.h"

namespace nibble::test {
namespace {

constexpr int64_t kSequences = 5, kEach = 6, kBlocks = 11, kSlots = 4;

struct Numbers {
  std::vector<int64_t> shown = std::vector<int64_t>(size_t(kSequences * kEach));
  std::map<int64_t, std::vector<int64_t>> memory;  // by name
  int64_t shows_until_failure = -1;
  Numbers() {
    for (size_t i = 0; i < shown.size(); ++i) shown[i] = int64_t(i);
  }
  int64_t& at(int64_t slot) {
    auto& block = memory[shown.at(size_t(slot / kSlots))];
    block.resize(size_t(kSlots));
    return block[size_t(slot % kSlots)];
  }
  CacheBlocks::Memory functions() {
    return {[this](int64_t place, int64_t name, int64_t n) {
              if (shows_until_failure == 0) {
                shows_until_failure = -1;
                throw std::runtime_error("no more mappings");
              }
              shows_until_failure -= shows_until_failure > 0;
              for (int64_t i = 0; i < n; ++i) shown.at(size_t(place + i)) = name + i;
            },
            [this](int64_t name, int64_t n) {
              for (int64_t i = 0; i < n; ++i) memory.erase(name + i);
            },
            [this](int64_t to, int64_t from, int64_t slots) {
              for (int64_t i = 0; i < slots; ++i) at(to * kSlots + i) = at(from * kSlots + i);
            }};
  }
};

class CacheBlocksTest : public testing::Test {
 protected:
  void expect_all_read_what_they_wrote() {
    int64_t held = 0;
    for (int64_t s = 0; s < kSequences; ++s) {
      for (size_t i = 0; i < wrote_[size_t(s)].size(); ++i) {
        ASSERT_EQ(numbers_.at(s * kEach * kSlots + int64_t(i)), wrote_[size_t(s)][i])
            << "sequence " << s << ", slot " << i;
      }
      held += blocks_.held(s);
    }
    ASSERT_EQ(held - blocks_.saved() + blocks_.free(), kBlocks);
    ASSERT_EQ(blocks_.held_by(std::vector<bool>(size_t(kSequences), true)),
              kBlocks - blocks_.free());
    ASSERT_LE(int64_t(numbers_.memory.size()), kBlocks - blocks_.free());
  }
  bool write(int64_t s, int64_t n) {
    auto& w = wrote_[size_t(s)];
    if (!blocks_.hold(s, int64_t(w.size()) + n)) return false;
    for (int64_t i = 0; i < n; ++i) {
      w.push_back(++last_);
      numbers_.at(s * kEach * kSlots + int64_t(w.size()) - 1) = last_;
    }
    return true;
  }
  void cut(int64_t s, int64_t to) {
    wrote_[size_t(s)].resize(size_t(to));
    blocks_.keep(s, to);
  }
  bool share(int64_t from, int64_t to, int64_t n) {
    cut(to, 0);
    if (!blocks_.share(from, to, n)) return false;
    const auto& f = wrote_[size_t(from)];
    wrote_[size_t(to)].assign(f.begin(), f.begin() + n);
    return true;
  }

  Numbers numbers_;
  CacheBlocks blocks_{kSequences, kEach, kBlocks, kSlots, 1000, numbers_.functions()};
  std::vector<std::vector<int64_t>> wrote_ = std::vector<std::vector<int64_t>>(size_t(kSequences));
  int64_t last_ = 0;
};

TEST_F(CacheBlocksTest, WhateverHappensEachReadsWhatItWrote) {
  auto draw = [n = uint64_t(0)](int64_t below) mutable {
    return int64_t(philox(5, 2, n++)[0] % uint64_t(below));
  };
  int full = 0, shared = 0, failed = 0;
  for (int round = 0; round < 20000; ++round) {
    const int64_t s = draw(kSequences), other = (s + 1 + draw(kSequences - 1)) % kSequences;
    const auto length = int64_t(wrote_[size_t(s)].size());
    if (draw(50) == 0) numbers_.shows_until_failure = draw(3);
    try {
      switch (draw(4)) {
        case 0: cut(s, draw(length + 1)); break;
        case 1: shared += share(s, other, draw(length + 1)); break;
        default: full += !write(s, draw(kEach * kSlots - length + 1));
      }
    } catch (const std::runtime_error&) {
      ++failed;
    }
    numbers_.shows_until_failure = -1;
    expect_all_read_what_they_wrote();
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(full, 100);
  EXPECT_GT(shared, 100);
  EXPECT_GT(failed, 10);
  for (int64_t s = 0; s < kSequences; ++s) cut(s, 0);
  EXPECT_EQ(blocks_.free(), kBlocks);
  EXPECT_TRUE(numbers_.memory.empty());
}

TEST_F(CacheBlocksTest, WhoWroteABlockGoesOnInItAndTheOthersGetTheirOwn) {
  ASSERT_TRUE(write(0, 6));
  ASSERT_TRUE(share(0, 1, 5) && share(1, 2, 5));
  EXPECT_EQ(kBlocks - blocks_.free(), 2);
  EXPECT_EQ(blocks_.in_common(0, 2), 2);
  ASSERT_TRUE(write(0, 1));
  EXPECT_EQ(kBlocks - blocks_.free(), 2);
  ASSERT_TRUE(write(1, 1));
  EXPECT_EQ(kBlocks - blocks_.free(), 3);
  EXPECT_EQ(blocks_.in_common(0, 1), 1);
  cut(0, 0);  // the third is alone with it now
  ASSERT_TRUE(write(2, 1));
  EXPECT_EQ(kBlocks - blocks_.free(), 3);
  expect_all_read_what_they_wrote();
}

// A full pool says no, and nothing has changed.
TEST_F(CacheBlocksTest, ABlockOfOnesOwnNeedsRoom) {
  ASSERT_TRUE(write(0, 6) && share(0, 1, 5));
  ASSERT_TRUE(write(2, kEach * kSlots) && write(3, 3 * kSlots));
  EXPECT_EQ(blocks_.free(), 0);
  EXPECT_FALSE(write(1, 1));
  expect_all_read_what_they_wrote();
  cut(3, 2 * kSlots);
  EXPECT_TRUE(write(1, 1));
  expect_all_read_what_they_wrote();
}

// Sharing ends where the system has no more ranges of addresses to give; what is held goes on.
TEST_F(CacheBlocksTest, SharingHasALimit) {
  CacheBlocks few(kSequences, kEach, kBlocks, kSlots, 2, numbers_.functions());
  ASSERT_TRUE(few.hold(0, 8));
  EXPECT_TRUE(few.share(0, 2, 8));
  EXPECT_FALSE(few.can_share());
  EXPECT_FALSE(few.share(0, 4, 8));
  EXPECT_EQ(few.held(4), 0);
  EXPECT_TRUE(few.hold(4, 8));
}

}  // namespace
}  // namespace nibble::test
