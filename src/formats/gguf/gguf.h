// SPDX-License-Identifier: MIT
// GGUF: metadata and tensors in one file, or in several (name-00001-of-00003.gguf). Tensors stored
// in blocks are expanded to f32 while they are read. Names and shapes are the file's own (shapes
// outermost first); what they mean to a model is not known here.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "formats/gguf/metadata.h"
#include "formats/tensor_source.h"

namespace nibble {

class GgufSource final : public TensorSource {
 public:
  GgufSource(std::vector<InputFile> files, std::vector<TensorInfo> tensors, GgufMetadata metadata);
  void read(const TensorInfo& tensor, uint64_t byte_offset,
            std::span<std::byte> out) const override;
  bool grouped() const override { return false; }  // names end as they like
  // Bytes of a tensor as they lie in the file, in its blocks.
  void read_stored(const TensorInfo& tensor, uint64_t byte_offset, std::span<std::byte> out) const;
  // Of the first file.
  const GgufMetadata& values() const { return values_; }

 private:
  void expand(const TensorInfo& tensor, uint64_t byte_offset, std::span<std::byte> out) const;
  GgufMetadata values_;
};

// Any part of a split file stands for all of them, which lie beside it.
std::unique_ptr<GgufSource> open_gguf(const std::filesystem::path& path);
// False for the second and later parts of a split file, by its name.
bool is_first_gguf(const std::filesystem::path& path);
bool looks_like_gguf(const std::filesystem::path& path);  // false when it cannot be read

}  // namespace nibble
