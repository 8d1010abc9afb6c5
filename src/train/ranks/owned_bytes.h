// SPDX-License-Identifier: MIT
// Masters, moments and NVFP4 weights of several ranks as the bytes they are in a checkpoint: whole,
// wherever their parts lie.
#pragma once
#include <vector>

#include "train/memory.h"

namespace nibble {

// nvfp4: as blocks (packed_blocks.h).
enum class StateBytes : int64_t { master, m, v, nvfp4 };

// Bytes of a part, and where they stand in the whole.
struct OwnedRange {
  uint64_t whole = 0, part = 0, bytes = 0;
};
// Of elements `piece` of a parameter with n elements whose master has `type`; ascending.
std::vector<OwnedRange> owned_ranges(StateBytes what, const ShardPiece& piece, int64_t n,
                                     DType type, MomentFormat format);

// The tensor of a part that holds them.
const Tensor& owned_tensor(StateBytes what, const OwnedPart& own);

}  // namespace nibble
