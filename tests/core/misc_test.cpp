// SPDX-License-Identifier: MIT
// The small headers: checked arithmetic, errors, hashes, memory information.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/checked.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/memory_info.h"

namespace nibble {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, OverflowIsNotAValue) {
  EXPECT_EQ(checked_mul(3, 5), 15u);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(uint64_t(1) << 32, uint64_t(1) << 32), std::nullopt);
  EXPECT_EQ(checked_mul(kMax, 0), 0u);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
}

// Checkpoints know their data and their tokenizer by these.
TEST(Hash, StaysTheSameInEveryVersion) {
  EXPECT_EQ(hash_bytes("", 7), 0x538454127b09647au);
  EXPECT_EQ(hash_bytes("a", 7), 0x42fa1e051567d88du);
  EXPECT_EQ(hash_bytes("abc", 0), 0x8430da3330e04289u);
  EXPECT_EQ(hash_bytes("abcd", 7), 0x9acba74383891a2u);
  EXPECT_EQ(hash_bytes("nibble dataset 1", 0), 0x7e0e36b0e1199279u);
}

TEST(Errors, CarryMessageAndExitCode) {
  const auto code = [](auto&& raise) {
    try {
      raise();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "x 7");
      return e.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(code([] { throw_usage("x {}", 7); }), ExitCode::usage);
  EXPECT_EQ(code([] { throw_format("x {}", 7); }), ExitCode::file);
  EXPECT_EQ(code([] { throw_device("x {}", 7); }), ExitCode::device);
  EXPECT_EQ(code([] { throw_internal("x {}", 7); }), ExitCode::internal);
}

TEST(MemoryInfoTest, IsPlausible) {
  const MemoryInfo m = system_memory();
  EXPECT_GT(m.total_bytes, uint64_t(1) << 27);
  EXPECT_GT(m.available_bytes, 0u);
  EXPECT_LE(m.available_bytes, m.total_bytes);
  const uint64_t before = process_resident_bytes();
  const std::vector<char> block(64 << 20, 1);
  EXPECT_GE(process_resident_bytes(), before + (60 << 20));
  EXPECT_GE(process_peak_bytes(), before + (60 << 20));
  EXPECT_EQ(block.back(), 1);
}

TEST(MemoryInfoTest, FormatsSizes) { EXPECT_EQ(format_bytes(uint64_t(3040832512)), "2.83 GiB"); }

}  // namespace
}  // namespace nibble
