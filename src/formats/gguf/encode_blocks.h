// SPDX-License-Identifier: MIT
// Values into the blocks of a GGUF, to the bits the format's own tools make of them; and NVFP4 in
// its canonical layout into the format's blocks and back, which changes no value.
#pragma once
#include <cstdint>

#include "formats/gguf/block_types.h"

namespace nibble {

// The largest magnitude a block of this type can hold; 0 for a type that is not written.
float most_of_blocks(const BlockType& type);
// `count` blocks of finite values no larger than that: Q8_0, Q4_0, MXFP4. Throws InternalError for
// other types.
void encode_blocks(const BlockType& type, const float* x, int64_t count, uint8_t* blocks);

// A block of 64 is four of the canonical blocks of 16: 32 bytes of codes and 4 scales.
constexpr int64_t kGgufNvfp4Elements = 64;
// A scale below zero, which the format does not have, turns its codes instead.
void join_nvfp4_blocks(const uint8_t* codes, const uint8_t* scales, int64_t count, uint8_t* blocks);
// False for a scale that a canonical one cannot say (0xff, which readers take for 480).
bool split_nvfp4_blocks(const uint8_t* blocks, int64_t count, uint8_t* codes, uint8_t* scales);

}  // namespace nibble
