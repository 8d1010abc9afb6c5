// SPDX-License-Identifier: MIT
// Private to formats/gguf: what stands before the payload of one GGUF file. Versions 2 and 3.
#pragma once
#include <cstdint>
#include <vector>

#include "core/file.h"
#include "formats/gguf/metadata.h"
#include "formats/tensor_source.h"

namespace nibble {

struct GgufHeader {
  uint32_t version = 0;
  GgufMetadata metadata;
  // In the file's order. Offsets count from the start of the file, payloads lie inside it, aligned
  // and without overlap; shapes are outermost first.
  std::vector<TensorInfo> tensors;
};

GgufHeader read_gguf_header(const InputFile& file);

}  // namespace nibble
