// SPDX-License-Identifier: MIT
// Reading safetensors: the header, and a sharded model through its index.
#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "formats/safetensors_json.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the official library's limit

// Payloads must lie end to end and fill the file: overlap or a hole means damage.
void check_layout(const InputFile& file, uint64_t data_begin, std::vector<TensorInfo>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.file_offset != b.file_offset ? a.file_offset < b.file_offset : a.n_bytes < b.n_bytes;
  });
  const uint64_t available = file.size() - data_begin;
  uint64_t end = 0;
  for (TensorInfo& t : tensors) {
    if (t.n_bytes > available || t.file_offset > available - t.n_bytes) {
      throw_format("{}: tensor '{}' ends at byte {} of the payload, which has {} (truncated?)",
                   file.path().string(), t.name, t.file_offset + t.n_bytes, available);
    }
    if (t.file_offset != end) {
      throw_format("{}: tensor '{}' begins at byte {} of the payload, the one before ends at {}",
                   file.path().string(), t.name, t.file_offset, end);
    }
    end += t.n_bytes;
    t.file_offset += data_begin;
  }
  if (end != available) {
    throw_format("{}: {} bytes follow the last tensor", file.path().string(), available - end);
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string path = file.path().string();
  uint64_t n = 0;
  if (file.size() < sizeof(n)) {
    throw_format("{}: {} bytes is too short for a safetensors file", path, file.size());
  }
  file.read(0, std::as_writable_bytes(std::span(&n, 1)));
  if (n > kMaxHeaderBytes) {
    throw_format("{}: a header of {} bytes is over the limit of {} (not a safetensors file?)", path,
                 n, kMaxHeaderBytes);
  }
  if (n > file.size() - sizeof(n)) {
    throw_format("{}: the header has {} bytes, the file only {} (truncated?)", path, n,
                 file.size());
  }
  std::string text(size_t(n), '\0');
  file.read(sizeof(n), std::as_writable_bytes(std::span(text)));
  // As the official library has it: white space may follow the header, not precede it.
  if (!text.starts_with('{')) {
    throw_format("{}: the header does not begin with '{{' (not a safetensors file?)", path);
  }
  SafetensorsHeader header = parse_safetensors_json(text, path);
  check_layout(file, sizeof(n) + n, header.tensors);
  return header;
}

std::unique_ptr<TensorSource> open_safetensors(const fs::path& path) {
  std::vector<InputFile> files;
  files.emplace_back(path);
  SafetensorsHeader header = read_safetensors_header(files.front());
  return std::make_unique<TensorSource>("safetensors", std::move(files), std::move(header.tensors),
                                        std::move(header.metadata));
}

std::unique_ptr<TensorSource> open_sharded_safetensors(const fs::path& index) {
  const std::string index_name = index.string();
  const auto weight_map =
      parse_safetensors_index(read_text_file(index, kMaxHeaderBytes), index_name);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) {
    // A shard is a file beside the index; anything else could name any file on the machine.
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      throw_format("{}: tensor '{}' names the shard '{}', which is not a plain file name",
                   index_name, tensor, shard);
    }
    shards.insert(shard);
  }

  std::vector<InputFile> files;
  std::vector<TensorInfo> tensors;
  TensorSource::Metadata metadata;
  std::set<std::string> found;
  for (const std::string& shard : shards) {
    const fs::path path = index.parent_path() / shard;
    if (!fs::exists(path)) throw_format("{}: the shard {} is missing", index_name, path.string());
    const InputFile& file = files.emplace_back(path);
    SafetensorsHeader header = read_safetensors_header(file);
    for (TensorInfo& t : header.tensors) {
      const auto it = weight_map.find(t.name);
      if (it == weight_map.end() || it->second != shard) {
        throw_format("{}: holds tensor '{}', which {} {}", path.string(), t.name, index_name,
                     it == weight_map.end() ? "does not list" : "places in " + it->second);
      }
      t.file_index = int(files.size()) - 1;
      found.insert(t.name);
      tensors.push_back(std::move(t));
    }
    metadata.merge(header.metadata);
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (!found.contains(tensor)) {
      throw_format("{}: tensor '{}' is not in {}", index_name, tensor, shard);
    }
  }
  return std::make_unique<TensorSource>("safetensors", std::move(files), std::move(tensors),
                                        std::move(metadata));
}

}  // namespace nibble
