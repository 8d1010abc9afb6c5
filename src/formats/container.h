// SPDX-License-Identifier: MIT
// The formats a model can be written in: the one table behind --to, what the name of an output
// means, and the docs (ADR 0022).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf/metadata.h"
#include "formats/tensor_writer.h"

namespace nibble {

// A .dat file, one .safetensors file, a directory as the Hugging Face tools write it, or a .gguf.
enum class Container { dat, safetensors, directory, gguf };

// What a packed matrix is called in safetensors and in a .dat, and what its global scale means.
enum class Nvfp4Names {
  nibble,              // .weight.qdata, .weight.scale, .weight.global_scale
  compressed_tensors,  // .weight_packed, .weight_scale, .weight_global_scale (a divisor)
  modelopt,            // .weight, .weight_scale, .weight_scale_2
};

enum class ModelFormat { hf, dat, safetensors, gguf, compressed_tensors, modelopt };

struct FormatRow {
  ModelFormat format;
  std::string_view name;  // of --to
  Container container;
  Nvfp4Names nvfp4;
  std::string_view ending;  // of the file; empty: a directory
  std::string_view holds;   // "one file with everything"
};
std::span<const FormatRow> format_table();
const FormatRow& format_row(ModelFormat format);
std::vector<std::pair<std::string, ModelFormat>> format_names();  // as options want them

// What is to be written under this name: what `to` says, else what the ending means; no ending of
// the table is a directory. Throws UsageError for an ending that means something else (.bin, .pt),
// and where name and `to` contradict each other.
const FormatRow& format_for(const std::filesystem::path& path,
                            std::optional<ModelFormat> to = std::nullopt);
Container container_for(const std::filesystem::path& path);

// A directory must exist. `metadata`: of a GGUF, which has all its texts in itself.
std::unique_ptr<TensorWriter> make_writer(Container container, const std::filesystem::path& out,
                                          std::vector<TensorInfo> tensors,
                                          const GgufMetadata& metadata = GgufMetadata());

}  // namespace nibble
