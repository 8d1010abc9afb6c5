// SPDX-License-Identifier: MIT
#include "train/ranks/packed_blocks.h"

#include <cstring>
#include <vector>

namespace nibble {
namespace {

constexpr int64_t kCodeBytes = kNvfp4Block / 2;

// The canonical bytes of the rows that a range of elements touches.
struct TouchedRows {
  int64_t row, rows, first_block, blocks;  // blocks of the range, counted from the first row's
  std::vector<uint8_t> codes, scales;
  TouchedRows(const LinearWeight& w, int64_t begin, int64_t count)
      : row(begin / w.in),
        rows((begin + count - 1) / w.in + 1 - row),
        first_block((begin - row * w.in) / kNvfp4Block),
        blocks(count / kNvfp4Block),
        codes(size_t(rows * w.in / 2)),
        scales(size_t(rows * w.in / kNvfp4Block)) {}
  std::span<uint8_t> range_codes() {
    return std::span(codes).subspan(size_t(first_block * kCodeBytes), size_t(blocks * kCodeBytes));
  }
  std::span<uint8_t> range_scales() {
    return std::span(scales).subspan(size_t(first_block), size_t(blocks));
  }
};

}  // namespace

void blocks_from(std::span<const uint8_t> codes, std::span<const uint8_t> scales, std::byte* to) {
  for (size_t b = 0; b < scales.size(); ++b, to += kNvfp4BlockBytes) {
    std::memcpy(to, codes.data() + b * size_t(kCodeBytes), size_t(kCodeBytes));
    to[kCodeBytes] = std::byte(scales[b]);
  }
}

void blocks_to(const std::byte* from, std::span<uint8_t> codes, std::span<uint8_t> scales) {
  for (size_t b = 0; b < scales.size(); ++b, from += kNvfp4BlockBytes) {
    std::memcpy(codes.data() + b * size_t(kCodeBytes), from, size_t(kCodeBytes));
    scales[b] = uint8_t(from[kCodeBytes]);
  }
}

void read_blocks(const Backend& be, const LinearWeight& w, int64_t row_offset, int64_t begin,
                 int64_t count, std::byte* to) {
  TouchedRows t(w, begin, count);
  be.unpack_rows(w, row_offset + t.row, t.rows, t.codes, t.scales);
  blocks_from(t.range_codes(), t.range_scales(), to);
}

void write_blocks(Backend& be, const LinearWeight& w, int64_t row_offset, int64_t begin,
                  int64_t count, const std::byte* from) {
  TouchedRows t(w, begin, count);
  // The rest of rows that are not whole here stays as it is.
  const bool cut = begin % w.in != 0 || (begin + count) % w.in != 0;
  if (cut) be.unpack_rows(w, row_offset + t.row, t.rows, t.codes, t.scales);
  blocks_to(from, t.range_codes(), t.range_scales());
  be.pack_rows(w, row_offset + t.row, t.rows, t.codes, t.scales);
}

}  // namespace nibble
