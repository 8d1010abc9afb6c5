// SPDX-License-Identifier: MIT
// Named tensors in files: what is there, and reads of any byte range straight into the caller's
// memory. Knows byte layouts, not models; formats/weights.h groups packed tensors.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace nibble {

struct BlockType;  // formats/gguf/block_types.h

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t n_bytes = 0;
  int dat_code = -1;         // element type code in a .dat, -1 elsewhere
  uint64_t file_offset = 0;  // of the payload, in its file
  int file_index = 0;        // into TensorSource::files()
  // Stored in blocks of this type, which reading expands to `dtype`; null: stored as it is read.
  const BlockType* blocks = nullptr;

  int64_t numel() const;
  uint64_t stored_bytes() const;  // in the file: fewer than n_bytes where it is in blocks
  std::string describe() const;   // "f16[384, 64]"
};

class TensorSource {
 public:
  using Metadata = std::map<std::string, std::string>;
  // The parsers' way in: tensors with unique names whose payloads lie inside their files.
  TensorSource(std::string format, std::vector<InputFile> files, std::vector<TensorInfo> tensors,
               Metadata metadata = {});
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;  // by_name_ views tensors_
  TensorSource& operator=(const TensorSource&) = delete;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in file order
  const TensorInfo* find(std::string_view name) const;                 // null when there is none
  const TensorInfo& at(std::string_view name) const;  // throws FormatError naming it
  // Fills `out` from byte `byte_offset` of the tensor's payload. Thread-safe.
  virtual void read(const TensorInfo& tensor, uint64_t byte_offset, std::span<std::byte> out) const;

  // InputFile::forget_cached of all its files.
  void forget_cached() const;

  // Whether names that end in .qdata, .scale and the like are the parts of one NVFP4 matrix.
  virtual bool grouped() const { return true; }
  const std::string& format() const { return format_; }  // "dat", "safetensors", "gguf"
  virtual const std::vector<InputFile>& files() const { return files_; }
  const Metadata& metadata() const { return metadata_; }  // safetensors' __metadata__
  uint64_t payload_bytes() const;                         // as they are read
  uint64_t stored_bytes() const;                          // as they lie in the files
  std::string name() const;                               // of its (first) file, for messages
  std::string describe() const;  // "models/x.dat: dat, 652 tensors, 2.83 GiB"

 protected:
  // For sources whose bytes come from elsewhere: they override read().
  struct Virtual {};
  TensorSource(Virtual, std::string format, std::vector<TensorInfo> tensors, Metadata metadata);
  // Throws InternalError unless [byte_offset, byte_offset + n) lies inside the tensor.
  static void check_range(const TensorInfo& tensor, uint64_t byte_offset, uint64_t n);

 private:
  void index_names();
  std::string format_;
  std::vector<InputFile> files_;
  std::vector<TensorInfo> tensors_;
  Metadata metadata_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys view tensors_' names
};

// A .dat, a .safetensors, a .gguf, a model.safetensors.index.json, or a directory that holds
// model.safetensors or that index. Throws FormatError that says what was expected.
std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& path);

// Throws UsageError when writing `output` would destroy an input (also through links).
void refuse_overwrite_of_input(const std::filesystem::path& input,
                               const std::filesystem::path& output);
void refuse_overwrite_of_input(const TensorSource& input, const std::filesystem::path& output);

}  // namespace nibble
