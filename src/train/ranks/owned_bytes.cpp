// SPDX-License-Identifier: MIT
#include "train/ranks/owned_bytes.h"

#include "optim/moment_part.h"
#include "train/ranks/packed_blocks.h"

namespace nibble {

std::vector<OwnedRange> owned_ranges(StateBytes what, const ShardPiece& piece, int64_t n,
                                     DType type, MomentFormat format) {
  if (what == StateBytes::master) {
    const auto size = uint64_t(dtype_bytes(type));
    return {{uint64_t(piece.begin) * size, 0, uint64_t(piece.count) * size}};
  }
  if (what == StateBytes::nvfp4) {
    return {
        {uint64_t(packed_block_bytes(piece.begin)), 0, uint64_t(packed_block_bytes(piece.count))}};
  }
  std::vector<OwnedRange> ranges;
  for (const MomentRange& r : moment_part(format, n, piece.begin, piece.count)) {
    if (r.bytes > 0) ranges.push_back({r.whole, r.part, r.bytes});
  }
  return ranges;
}

const Tensor& owned_tensor(StateBytes what, const OwnedPart& own) {
  switch (what) {
    case StateBytes::master: return own.master;
    case StateBytes::m: return own.moments.m;
    case StateBytes::v: return own.moments.v;
    case StateBytes::nvfp4: break;
  }
  return own.nvfp4;
}

}  // namespace nibble
