// SPDX-License-Identifier: MIT
#include "formats/tensor_source.h"

#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/memory_info.h"
#include "formats/dat.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::unique_ptr<TensorSource> open_directory(const fs::path& directory) {
  const fs::path single = directory / kSingleFile, index = directory / kIndexFile;
  const bool has_single = fs::exists(single), has_index = fs::exists(index);
  if (has_single && has_index) {
    throw_format("{}: holds both {} and {}; name the one to read", directory.string(), kSingleFile,
                 kIndexFile);
  }
  if (has_single) return open_safetensors(single);
  if (has_index) return open_sharded_safetensors(index);
  throw_format("{}: no {} or {} in this directory; a .dat file is named directly",
               directory.string(), kSingleFile, kIndexFile);
}

bool looks_like_safetensors(const fs::path& path) {
  const InputFile file(path);
  std::byte start[9];
  if (file.size() < sizeof(start)) return false;
  file.read(0, start);
  uint64_t header = 0;
  std::memcpy(&header, start, sizeof(header));
  return header <= file.size() - 8 && start[8] == std::byte('{');
}

}  // namespace

int64_t TensorInfo::numel() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

uint64_t TensorInfo::stored_bytes() const {
  if (!blocks) return n_bytes;
  return uint64_t(numel()) / uint64_t(blocks->elements) * uint64_t(blocks->bytes);
}

std::string TensorInfo::describe() const {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

TensorSource::TensorSource(std::string format, std::vector<InputFile> files,
                           std::vector<TensorInfo> tensors, Metadata metadata)
    : format_(std::move(format)),
      files_(std::move(files)),
      tensors_(std::move(tensors)),
      metadata_(std::move(metadata)) {
  index_names();
  for (const TensorInfo& t : tensors_) {
    const InputFile& file = files_.at(size_t(t.file_index));
    if (t.file_offset > file.size() || t.stored_bytes() > file.size() - t.file_offset) {
      throw_internal("{}: tensor '{}' lies outside the file", file.path().string(), t.name);
    }
  }
}

TensorSource::TensorSource(Virtual, std::string format, std::vector<TensorInfo> tensors,
                           Metadata metadata)
    : format_(std::move(format)), tensors_(std::move(tensors)), metadata_(std::move(metadata)) {
  index_names();
}

void TensorSource::index_names() {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& t = tensors_[i];
    if (!by_name_.emplace(t.name, i).second) {
      throw_format("{}tensor '{}' occurs twice",
                   files_.empty() ? "" : files_.at(size_t(t.file_index)).path().string() + ": ",
                   t.name);
    }
  }
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const TensorInfo& TensorSource::at(std::string_view name) const {
  if (const TensorInfo* t = find(name)) return *t;
  throw_format("{}: there is no tensor '{}'", describe(), name);
}

void TensorSource::check_range(const TensorInfo& tensor, uint64_t byte_offset, uint64_t n) {
  if (byte_offset > tensor.n_bytes || n > tensor.n_bytes - byte_offset) {
    throw_internal("tensor '{}': {} bytes wanted at offset {}, it has {}", tensor.name, n,
                   byte_offset, tensor.n_bytes);
  }
}

void TensorSource::read(const TensorInfo& tensor, uint64_t byte_offset,
                        std::span<std::byte> out) const {
  check_range(tensor, byte_offset, out.size());
  files_.at(size_t(tensor.file_index)).read(tensor.file_offset + byte_offset, out);
}

void TensorSource::forget_cached() const {
  for (const InputFile& file : files()) file.forget_cached();
}

uint64_t TensorSource::payload_bytes() const {
  uint64_t n = 0;
  for (const TensorInfo& t : tensors_) n += t.n_bytes;
  return n;
}

uint64_t TensorSource::stored_bytes() const {
  uint64_t n = 0;
  for (const TensorInfo& t : tensors_) n += t.stored_bytes();
  return n;
}

std::string TensorSource::name() const {
  return files().empty() ? "(no file)" : files().front().path().string();
}

std::string TensorSource::describe() const {
  const std::string shards = files().size() > 1 ? fmt::format(" in {} files", files().size()) : "";
  return fmt::format("{}: {}{}, {} tensors, {}", name(), format_, shards, tensors_.size(),
                     format_bytes(stored_bytes()));
}

std::unique_ptr<TensorSource> open_tensor_source(const fs::path& path) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) throw_format("cannot open {}: there is no such file", path.string());
  if (fs::is_directory(status)) return open_directory(path);
  const std::string extension = path.extension().string();
  if (extension == ".dat") return open_dat(path);
  if (extension == ".safetensors") return open_safetensors(path);
  if (extension == ".gguf" || looks_like_gguf(path)) return open_gguf(path);
  if (path.filename().string().ends_with(".index.json")) return open_sharded_safetensors(path);
  // A .dat has no magic number to tell it by, so it must carry its extension.
  if (looks_like_safetensors(path)) return open_safetensors(path);
  throw_format(
      "{}: not a weight file; expected *.dat, *.safetensors, *.gguf, *.safetensors.index.json or "
      "a directory that holds {} or its index",
      path.string(), kSingleFile);
}

void refuse_overwrite_of_input(const fs::path& input, const fs::path& output) {
  if (same_file(input, output)) {
    throw_usage("the output {} is the input {}: choose another name", output.string(),
                input.string());
  }
}

void refuse_overwrite_of_input(const TensorSource& input, const fs::path& output) {
  for (const InputFile& f : input.files()) refuse_overwrite_of_input(f.path(), output);
}

}  // namespace nibble
