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
#include "formats/nvfp4_names.h"
#include "formats/tensor_writer.h"

namespace nibble {

// A .dat file, one .safetensors file, a directory as the Hugging Face tools write it, or a .gguf.
enum class Container { dat, safetensors, directory, gguf };

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

// A directory must exist, and has files of at most `max_shard_bytes`. `metadata`: of a GGUF, which
// has all its texts in itself.
std::unique_ptr<TensorWriter> make_writer(Container container, const std::filesystem::path& out,
                                          std::vector<TensorInfo> tensors,
                                          const GgufMetadata& metadata = GgufMetadata(),
                                          uint64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace nibble
