// SPDX-License-Identifier: MIT
// The CPU backend's private NVFP4 layout: round trips, refusal of NaN scales, sizes.
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
  EXPECT_EQ(backend->packed_bytes(1, 16), 576u);
}

}  // namespace
}  // namespace nibble::test
