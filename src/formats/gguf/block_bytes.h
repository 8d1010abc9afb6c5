// SPDX-License-Identifier: MIT
// Private to formats/gguf: little-endian numbers inside a block.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/half.h"

namespace nibble::gguf {

inline uint16_t u16_at(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }
inline uint32_t u32_at(const uint8_t* p) {
  return uint32_t(u16_at(p)) | uint32_t(u16_at(p + 2)) << 16;
}
inline float f16_at(const uint8_t* p) { return to_float(f16_t{u16_at(p)}); }

}  // namespace nibble::gguf
