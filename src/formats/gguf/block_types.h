// SPDX-License-Identifier: MIT
// The element types of a GGUF. Most are blocks: a few dozen or hundred elements of a row share
// scales and are stored in as many bytes as the type says. They are expanded to f32, in the order
// of operations (and so to the bits) that the format's own tools have. docs/formats.md lists them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace nibble {

struct BlockType {
  // `count` blocks at `blocks` into count * elements floats.
  using Expand = void (*)(const uint8_t* blocks, int64_t count, float* out);

  uint32_t code;          // in the file
  std::string_view name;  // "Q4_K"
  DType dtype;            // of what a reader sees
  int64_t elements;       // of a block
  int64_t bytes;          // of a block
  int bits;               // of an element's code; 0 for types that are stored as they are
  Expand expand;          // null for types that are stored as they are
};

// Null for a code that is not read (removed from the format, or newer than this reader).
const BlockType* find_block_type(uint64_t code);
// The type whose elements are stored as they are ("BF16" of bf16); null for a type GGUF lacks.
const BlockType* find_plain_type(DType dtype);
const BlockType& block_type_named(std::string_view name);  // throws InternalError
// The name of a code that is known and not read ("Q8_K"); empty for other codes.
std::string_view unread_block_type(uint64_t code);

namespace gguf {

// The bodies, by family. Each takes one block.
constexpr int64_t kSmall = 32, kSuper = 256;  // elements of the usual blocks

void expand_q4_0(const uint8_t* b, float* out);
void expand_q4_1(const uint8_t* b, float* out);
void expand_q5_0(const uint8_t* b, float* out);
void expand_q5_1(const uint8_t* b, float* out);
void expand_q8_0(const uint8_t* b, float* out);
void expand_iq4_nl(const uint8_t* b, float* out);
void expand_iq4_xs(const uint8_t* b, float* out);
void expand_mxfp4(const uint8_t* b, float* out);
void expand_nvfp4(const uint8_t* b, float* out);

void expand_q2_k(const uint8_t* b, float* out);
void expand_q3_k(const uint8_t* b, float* out);
void expand_q4_k(const uint8_t* b, float* out);
void expand_q5_k(const uint8_t* b, float* out);
void expand_q6_k(const uint8_t* b, float* out);
void expand_tq1_0(const uint8_t* b, float* out);
void expand_tq2_0(const uint8_t* b, float* out);

void expand_iq1_s(const uint8_t* b, float* out);
void expand_iq1_m(const uint8_t* b, float* out);
void expand_iq2_xxs(const uint8_t* b, float* out);
void expand_iq2_xs(const uint8_t* b, float* out);
void expand_iq2_s(const uint8_t* b, float* out);
void expand_iq3_xxs(const uint8_t* b, float* out);
void expand_iq3_s(const uint8_t* b, float* out);

}  // namespace gguf
}  // namespace nibble
