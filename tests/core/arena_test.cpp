// SPDX-License-Identifier: MIT
#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace nibble {
namespace {

Buffer host_buffer(size_t n, int* freed = nullptr) {
  auto* p = static_cast<std::byte*>(std::aligned_alloc(Arena::kAlignment, n));
  return Buffer(p, n, [freed](std::byte* q, size_t) {
    if (freed) ++*freed;
    std::free(q);
  });
}

TEST(BufferTest, FreesOnceAndMoves) {
  int freed = 0;
  {
    Buffer a = host_buffer(256, &freed);
    Buffer b = std::move(a);
    EXPECT_EQ(a.data(), nullptr);
    EXPECT_EQ(b.bytes(), 256u);
    b = host_buffer(512, &freed);
    EXPECT_EQ(freed, 1) << "assignment frees what was there";
    EXPECT_EQ(b.bytes(), 512u);
  }
  EXPECT_EQ(freed, 2);
}

void take_some(Arena& arena) {
  arena.take(DType::f32, {3, 5});
  const size_t mark = arena.mark();
  arena.take(DType::u8, {1000});
  arena.release(mark);
  arena.take(DType::bf16, {7});
}

TEST(ArenaTest, MeasuredSizeIsExactlyEnough) {
  Arena measure("m");
  EXPECT_TRUE(measure.measuring());
  take_some(measure);
  EXPECT_EQ(measure.peak(), 256u + 1024u);
  EXPECT_EQ(measure.used(), 512u);
  Arena real("r", host_buffer(measure.peak()));
  take_some(real);
  EXPECT_EQ(real.peak(), measure.peak());
  Arena small("small", host_buffer(measure.peak() - Arena::kAlignment));
  try {
    take_some(small);
    FAIL() << "too small an arena must say so";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("small"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("u8[1000]"), std::string::npos);
  }
}

TEST(ArenaTest, ViewsAreAlignedAndDisjoint) {
  Arena a("a", host_buffer(4096));
  const Tensor x = a.take(DType::u8, {1}), y = a.take(DType::f64, {3}), z = a.take(DType::f32, {0});
  EXPECT_EQ(y.data - x.data, std::ptrdiff_t(Arena::kAlignment));
  EXPECT_EQ(z.data - y.data, std::ptrdiff_t(Arena::kAlignment));
  EXPECT_EQ(z.numel(), 0);
  const Tensor w = a.take(DType::u8, {4096 - 512});
  EXPECT_EQ(w.data, z.data) << "an empty tensor takes no room";
  EXPECT_EQ(a.used(), a.capacity());
  EXPECT_THROW(a.take(DType::u8, {1}), InternalError);
}

TEST(ArenaTest, ReleaseReusesMemory) {
  Arena a("a", host_buffer(1024));
  const size_t mark = a.mark();
  const Tensor x = a.take(DType::f32, {10});
  a.release(mark);
  EXPECT_EQ(a.take(DType::f32, {20}).data, x.data);
}

}  // namespace
}  // namespace nibble
