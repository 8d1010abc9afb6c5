// SPDX-License-Identifier: MIT
// NVFP4 as ranks send and share it: block by block, 8 bytes of codes and one of scale.
#pragma once
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "quant/nvfp4.h"

namespace nibble {

constexpr int64_t kNvfp4BlockBytes = kNvfp4Block / 2 + 1;

constexpr int64_t packed_block_bytes(int64_t elements) {
  return elements / kNvfp4Block * kNvfp4BlockBytes;
}

// Elements [begin, begin + count) of what begins with row `row_offset` of a packed weight; whole
// blocks, which may be parts of rows.
void read_blocks(const Backend& backend, const LinearWeight& w, int64_t row_offset, int64_t begin,
                 int64_t count, std::byte* to);
void write_blocks(Backend& backend, const LinearWeight& w, int64_t row_offset, int64_t begin,
                  int64_t count, const std::byte* from);

// Between blocks and canonical codes and scales (quant/nvfp4.h).
void blocks_from(std::span<const uint8_t> codes, std::span<const uint8_t> scales, std::byte* to);
void blocks_to(const std::byte* from, std::span<uint8_t> codes, std::span<uint8_t> scales);

}  // namespace nibble
