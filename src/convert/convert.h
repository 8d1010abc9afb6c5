// SPDX-License-Identifier: MIT
// One weight file into another: container, element types, NVFP4 or not. Streams by rows; beside
// the scales of one tensor only a few MiB are held, whatever the model's size.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "formats/container.h"
#include "formats/tensor_source.h"
#include "model/config.h"
#include "quant/nvfp4.h"

namespace nibble {

// stored: what is NVFP4 stays so, the rest as it is. The last three are blocks of a GGUF.
enum class Packing { none, nvfp4, stored, q8_0, q4_0, mxfp4 };
enum class ScaleLevels { single, two };

struct ConvertSettings {
  Container container = Container::directory;
  Nvfp4Names names = Nvfp4Names::nibble;  // of what is NVFP4 in the output
  Packing packing = Packing::none;
  std::string quantize;  // a regular expression for names; empty: is_linear_name
  ScaleRule rule = ScaleRule::four_over_six;
  ScaleLevels levels = ScaleLevels::single;
  std::optional<DType> dtype;                     // of raw floating-point tensors
  uint64_t max_shard_bytes = kDefaultShardBytes;  // of a directory's files
  // Norms and biases that are f32 stay so in a new .dat, too, whose raw tensors are else f16.
  bool keep_f32_vectors = false;
  // The largest magnitudes of the inputs of linear layers, by the name of their weight: other
  // programs' NVFP4 then has fixed scales of its inputs.
  std::map<std::string, float> input_maxima;
  GgufMetadata metadata;  // of a GGUF: what it says of the model, its tokenizer, where it is from
};

struct ConvertSummary {
  size_t entries = 0;
  uint64_t payload_bytes = 0;
  // Tensors by what was done to them.
  int64_t copied = 0, cast = 0, quantised = 0, dequantised = 0;
  QuantError error;                // of all quantised tensors together
  int64_t rounded = 0;             // raw values their new type could not hold exactly
  bool head_made = false;          // a .dat got its own copy of a tied head
  bool head_dropped = false;       // a directory needs none
  bool untied = false;             // config says tied, the head says otherwise
  std::vector<std::string> notes;  // for people: what is not obvious about the result
  // Of NVFP4 for other programs: modules that stay dense, whether all have scales of their inputs,
  // and what one scale for several matrices cost.
  std::vector<std::string> dense_modules;
  bool input_scales = false;
  int64_t changed_codes = 0, changed_scales = 0;
  std::vector<std::string> damage;  // what inspect will say of it: values that are no numbers
};

// The block type of such a packing ("Q8_0"); null for the others.
const BlockType* block_type_of(Packing packing);

// Weights the predecessor's quantiser takes: linear layers and the head by name.
bool is_linear_name(const std::string& name);

// `config` may be null: then no head is made or dropped, and the order is the input's. Tensors of
// a Hugging Face model are put into state-dict order, everything else keeps its order.
// What is NVFP4 already is copied when it stays so. Throws FormatError for what cannot be
// converted (width no multiple of 16, values fp16 cannot hold, NaN), naming the tensor. A GGUF
// needs a config; a matrix whose rows are no whole blocks of the type asked for becomes another,
// which a note says.
ConvertSummary convert_weights(const TensorSource& source, const Config* config,
                               const std::filesystem::path& out, const ConvertSettings& settings,
                               ThreadPool& pool);

}  // namespace nibble
