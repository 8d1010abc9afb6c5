// SPDX-License-Identifier: MIT
// Private to convert: what will be written, decided before the first byte is.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "formats/weights.h"

namespace nibble {

struct ConvertJob {
  enum class Kind {
    copy,
    cast,
    quantise,
    dequantise,
    copy_packed,
    // Of a GGUF:
    encode,  // values into blocks
    join,    // NVFP4, that of the input or made here, into blocks
    given,   // made of the config
  };
  Kind kind = Kind::copy;
  std::string name;                     // in the output, in Hugging Face's words
  const LogicalTensor* from = nullptr;  // into the input's index
  DType dtype = DType::f32;             // of a raw result
  bool two_level = false;               // kinds quantise, copy_packed and join
  // Kind quantise, a tied head: what the embedding is in the output. The codes are those of the
  // bf16 master a training makes of it, so that its first step changes none of them by itself.
  std::optional<DType> embed_dtype = {};
  const BlockType* blocks = nullptr;  // kinds encode and join
  // Kinds copy_packed and quantise: the global scale of the output, shared by a group of matrices;
  // 0: that of the input, or the matrix's own.
  float global = 0;
  float input_scale = 0;  // of the layer's inputs, in other programs' NVFP4; 0: none
  std::vector<const LogicalTensor*> group = {};  // kind quantise: whose global scale is one
  std::vector<float> values = {};                // kind given
};

struct ConvertPlan {
  std::vector<ConvertJob> jobs;
  std::vector<TensorInfo> entries;  // of the output, in order
  GgufMetadata metadata;            // of a GGUF
};

// Fills the head_*, untied and notes of `summary`.
ConvertPlan plan_conversion(const WeightIndex& index, const Config* config,
                            const ConvertSettings& settings, ThreadPool& pool,
                            ConvertSummary& summary);

}  // namespace nibble
