// SPDX-License-Identifier: MIT
// The small headers: checked arithmetic, errors, hashes, memory information.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "core/checked.h"
#include "core/error.h"
#include "core/finite.h"
#include "core/half.h"
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

// what() is a C string, and names come from files that may hold anything.
TEST(Error, ANulByteDoesNotCutTheMessage) {
  const FormatError e(std::string("x.gguf: key 'a\0b' at byte 24: twice\0", 36));
  EXPECT_STREQ(e.what(), "x.gguf: key 'a\\x00b' at byte 24: twice\\x00");
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

TEST(Finite, FindsTheFirstOfEachType) {
  const auto find = [](DType type, auto good, auto bad) {
    using T = decltype(good);
    for (const size_t at : {size_t(0), size_t(1), size_t(511), size_t(512), size_t(4999)}) {
      std::vector<T> x(5000, good);
      EXPECT_EQ(first_not_finite(type, std::as_bytes(std::span(x))), std::nullopt);
      x[at] = bad;
      x.back() = bad;
      EXPECT_EQ(first_not_finite(type, std::as_bytes(std::span(x))), at);
    }
  };
  using F = std::numeric_limits<float>;
  for (const float bad : {F::infinity(), -F::infinity(), F::quiet_NaN(), -F::quiet_NaN()}) {
    find(DType::f32, F::max(), bad);
    find(DType::f64, std::numeric_limits<double>::lowest(), double(bad));
    find(DType::bf16, to_bf16(-1.5f), to_bf16(bad));
    find(DType::f16, to_f16(65504.0f), to_f16(bad));
  }
  find(DType::f8_e4m3, uint8_t(0xfe), uint8_t(0xff));  // its largest, its NaN
  const std::vector<uint8_t> integers(100, 0xff);
  EXPECT_EQ(first_not_finite(DType::i32, std::as_bytes(std::span(integers))), std::nullopt);
  EXPECT_EQ(first_not_finite(DType::f32, {}), std::nullopt);
}

// A job in a slice in a container: the narrowest of all limits counts.
TEST(MemoryInfoTest, NestedCgroups) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("cgroups" + std::to_string(::getpid()));
  const auto group = [&](const std::string& name, const char* limit, const char* used) {
    std::filesystem::create_directories(root / name);
    std::ofstream(root / name / "memory.max") << limit << "\n";
    std::ofstream(root / name / "memory.current") << used << "\n";
  };
  const MemoryInfo machine{1000, 800};
  const auto available = [&](const char* cgroup) {
    return within_cgroups(machine, root, cgroup).available_bytes;
  };
  group("a", "max", "500");
  group("a/b", "600", "200");
  group("a/b/c", "900", "100");
  EXPECT_EQ(available("/"), 800u);
  EXPECT_EQ(available("/a"), 800u);
  EXPECT_EQ(available("/a/b"), 400u);
  EXPECT_EQ(available("/a/b/c"), 400u);  // around it is less than in it
  EXPECT_EQ(within_cgroups(machine, root, "/a/b/c").total_bytes, 600u);
  group("a/b/c", "150", "100");
  EXPECT_EQ(available("/a/b/c"), 50u);
  group("a/b/c", "150", "200");
  EXPECT_EQ(available("/a/b/c"), 0u);
  group("", "300", "100");
  EXPECT_EQ(available("/a"), 200u);
  EXPECT_EQ(available("/../elsewhere"), 200u);
  EXPECT_EQ(available(""), 200u);
  std::filesystem::remove_all(root);
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
