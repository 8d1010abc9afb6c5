// SPDX-License-Identifier: MIT
// The CPU backend's private NVFP4 layout: round trips, refusal of NaN scales, sizes.
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "core/error.h"
#include "ops/linear_support.h"

namespace nibble::test {
namespace {

TEST(PackedLayout, RoundTripIsExact) {
  const auto backend = make_tested_backend(2);
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{1, 16}, {16, 64}, {17, 80}, {100, 512}}) {
    const CanonicalNvfp4 c(out, in, 3);
    const OwnedWeight o = pack(*backend, c);
    std::vector<uint8_t> codes(c.codes.size()), scales(c.scales.size());
    backend->unpack_rows(o.w, 0, out, codes, scales);
    EXPECT_EQ(codes, c.codes);
    EXPECT_EQ(scales, c.scales);
  }
}

TEST(PackedLayout, RowsInAnyOrderAndChunking) {
  const auto backend = make_tested_backend(2);
  const CanonicalNvfp4 c(53, 96, 4);
  const OwnedWeight whole = pack(*backend, c);
  OwnedWeight parts = pack(*backend, CanonicalNvfp4(53, 96, 5));  // overwritten below
  const int64_t code_row = 96 / 2, scale_row = 96 / 16;
  for (const auto& [begin, rows] :
       {std::pair<int64_t, int64_t>{40, 13}, {0, 1}, {17, 23}, {1, 16}}) {
    backend->pack_rows(
        parts.w, begin, rows,
        std::span(c.codes).subspan(size_t(begin * code_row), size_t(rows * code_row)),
        std::span(c.scales).subspan(size_t(begin * scale_row), size_t(rows * scale_row)));
  }
  EXPECT_EQ(std::memcmp(parts.memory.data(), whole.memory.data(), whole.memory.bytes()), 0);
  std::vector<uint8_t> codes(size_t(3 * code_row)), scales(size_t(3 * scale_row));
  backend->unpack_rows(whole.w, 15, 3, codes, scales);
  EXPECT_EQ(std::memcmp(codes.data(), c.codes.data() + 15 * code_row, codes.size()), 0);
  EXPECT_EQ(std::memcmp(scales.data(), c.scales.data() + 15 * scale_row, scales.size()), 0);
}

TEST(PackedLayout, NegativeScalesComeBackPositiveWithFlippedCodes) {
  const auto backend = make_tested_backend(1);
  const CanonicalNvfp4 c(20, 64, 5, CanonicalNvfp4::Signs::both);
  const OwnedWeight o = pack(*backend, c);
  std::vector<uint8_t> codes(c.codes.size()), scales(c.scales.size());
  backend->unpack_rows(o.w, 0, 20, codes, scales);
  int negative = 0;
  for (size_t b = 0; b < scales.size(); ++b) {
    const bool was_negative = c.scales[b] & 0x80;
    negative += was_negative;
    EXPECT_EQ(scales[b], c.scales[b] & 0x7f);
    for (size_t i = 8 * b; i < 8 * b + 8; ++i) {
      EXPECT_EQ(codes[i], c.codes[i] ^ (was_negative ? 0x88 : 0));
    }
  }
  EXPECT_GT(negative, 0);
}

TEST(PackedLayout, NanScalesAreRefused) {
  const auto backend = make_tested_backend(1);
  for (uint8_t nan : {uint8_t(0x7f), uint8_t(0xff)}) {
    CanonicalNvfp4 c(3, 64, 6);
    OwnedWeight o = pack(*backend, c);
    c.scales[2 * 4 + 1] = nan;
    try {
      backend->pack_rows(o.w, 0, 3, c.codes, c.scales);
      ADD_FAILURE() << "accepted";
    } catch (const FormatError& e) {
      EXPECT_NE(std::string(e.what()).find("row 2"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("columns 16"), std::string::npos) << e.what();
    }
  }
}

TEST(PackedLayout, CostsNoMoreThanTheCanonicalOneOnAlignedShapes) {
  const auto backend = make_tested_backend(1);
  EXPECT_EQ(backend->packed_bytes(9728, 2560), size_t(9728) * 2560 / 2 + size_t(9728) * 2560 / 16);
  // One tile of the layout.
  EXPECT_EQ(backend->packed_bytes(1, 16), testing_cuda() ? 1152u : 576u);
}

// The arithmetic of the GPU's layout, which is plain C++.
TEST(GpuLayout, EveryBlockHasItsOwnBytes) {
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{1, 16}, {16, 128}, {37, 400}}) {
    std::vector<int> uses(cuda::packed_size(out, in));
    for (int64_t r = 0; r < out; ++r) {
      for (int64_t b = 0; b < in / 16; ++b) {
        const cuda::BlockPlace at = cuda::block_place(in, r, b);
        ASSERT_EQ(at.codes % 8, 0);
        for (int64_t i = 0; i < 8; ++i) uses.at(size_t(at.codes + i))++;
        uses.at(size_t(at.scale))++;
      }
    }
    int64_t used = 0;
    for (int u : uses) {
      ASSERT_LE(u, 1);
      used += u;
    }
    EXPECT_EQ(used, out * in / 16 * 9);
    EXPECT_EQ(cuda::packed_size(kRowPanel, in) + cuda::packed_size(out, in),
              cuda::packed_size(kRowPanel + out, in));
  }
}

// Lane (g, q) of a warp reads 16 bytes at 16 lane for row g, 512 further for row g + 8, and four
// scale bytes.
TEST(GpuLayout, ALaneHoldsItsPartOfTheMatrixOperand) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int h = 0; h < 4; ++h) {  // row g or g + 8, block 2 q or 2 q + 1
      const cuda::BlockPlace at = cuda::block_place(128, g + 8 * (h / 2), 2 * q + h % 2);
      EXPECT_EQ(at.codes, 512 * (h / 2) + 16 * lane + 8 * (h % 2));
      EXPECT_EQ(at.scale, cuda::kUnitCodeBytes + 4 * lane + h);
    }
  }
}

TEST(GpuLayout, WordsDecodeToTheValuesOfTheirCodes) {
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint32_t nibbles = philox(7, 0, i)[0], word = cuda::repack8(nibbles);
    ASSERT_EQ(cuda::unpack8(word), nibbles);
    uint32_t pairs[4];
    cuda::decode8(word, pairs);
    for (int e = 0; e < 8; ++e) {
      const uint16_t bits = uint16_t(pairs[e / 2] >> (16 * (e % 2)));
      const uint16_t half = uint16_t(cuda::bf16_pair_to_f16(pairs[e / 2]) >> (16 * (e % 2)));
      const float want = e2m1_value(uint8_t(nibbles >> (4 * e) & 15));
      ASSERT_EQ(to_float(bf16_t{bits}), want * 0x1p-126f);
      ASSERT_EQ(to_float(f16_t{half}), want * 0x1p-14f);
      ASSERT_EQ(std::signbit(to_float(bf16_t{bits})), std::signbit(want));
    }
  }
}

TEST(GpuLayout, BlocksRoundTripAndNegativeScalesMoveIntoTheCodes) {
  alignas(8) uint8_t packed[cuda::kUnitBytes] = {};
  for (uint64_t i = 0; i < 256; ++i) {
    const auto r = philox(8, 0, i);
    const uint64_t codes = uint64_t(r[0]) << 32 | r[1];
    const cuda::BlockPlace at = cuda::block_place(128, int64_t(i / 8 % 16), int64_t(i % 8));
    cuda::write_block(packed, at, codes, uint8_t(i));
    uint8_t scale = 0;
    EXPECT_EQ(cuda::read_block(packed, at, &scale), i & 0x80 ? codes ^ 0x8888888888888888u : codes);
    EXPECT_EQ(scale, i & 0x7f);
  }
}

}  // namespace
}  // namespace nibble::test
