// SPDX-License-Identifier: MIT
// Where the moments of some elements of a parameter lie in the buffer of all of them: a part that
// is kept apart has a buffer of its own, in the same layout.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "optim/adamw.h"

namespace nibble {

struct MomentRange {
  size_t whole = 0, part = 0, bytes = 0;  // offsets in the two buffers; bytes 0: nothing
};
// Codes, small scales, scales of elements [begin, begin + count) of n; begin a multiple of
// kMomentBlock, count, too, unless they are the last. The part's buffer has moment_bytes(format,
// count).
std::array<MomentRange, 3> moment_part(MomentFormat format, int64_t n, int64_t begin,
                                       int64_t count);

}  // namespace nibble
