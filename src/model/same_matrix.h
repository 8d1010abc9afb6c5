// SPDX-License-Identifier: MIT
// Are two stored tensors one matrix at two precisions? A GGUF has no flag for a tied head: the
// embedding and the head of a tied model may both be there, rounded to different block types.
#pragma once
#include "formats/tensor_source.h"

namespace nibble {

// True when the shapes are equal, at least one is stored in blocks, and 99.9 % of the elements (of
// rows spread evenly over the matrix) differ by no more than one step of each: 2 amax / (2^bits -
// 1) for codes of so many bits, with amax of the 256 elements around. Half a step is the rounding
// of the codes; the other half is room for that of the scales. Unrelated matrices agree on a third.
bool same_within_blocks(const TensorSource& source, const TensorInfo& a, const TensorInfo& b);

}  // namespace nibble
