// SPDX-License-Identifier: MIT
// safetensors: u64 header length, JSON header, payload. Also the sharded form with its
// model.safetensors.index.json. Checks what the official library checks: offsets in range, sizes
// that match, no overlap, no holes, no repeated names.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.h"
#include "formats/tensor_source.h"
#include "formats/tensor_writer.h"

namespace nibble {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in payload order
  TensorSource::Metadata metadata;
};
SafetensorsHeader read_safetensors_header(const InputFile& file);

std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path);
// `index` is the model.safetensors.index.json; the shards lie beside it.
std::unique_ptr<TensorSource> open_sharded_safetensors(const std::filesystem::path& index);

std::string_view safetensors_dtype_name(DType dtype);  // "BF16"; throws InternalError for c128

// An entry of the metadata that holds a hash (core/hash.h, QuickHash) of every byte of the file,
// the header with zeros in place of the hash included.
constexpr const char* kChecksumKey = "nibble_checksum";
enum class Checksum { none, quick };
// What is wrong with the file: it has no checksum, or is not what was written. Empty: nothing.
std::string find_damage(const std::filesystem::path& path);

class SafetensorsWriter final : public TensorWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const TensorSource::Metadata& metadata = {}, Checksum checksum = Checksum::none,
                    Existing existing = Existing::replace);

 private:
  void do_begin(const TensorInfo&) override {}
  void do_write(std::span<const std::byte> bytes) override;
  void do_finish() override;
  AtomicFile file_;
  std::optional<QuickHash> hash_;
  uint64_t hash_at_ = 0;  // of its place in the file
};

// Writes model.safetensors when everything fits into one shard, else
// model-00001-of-0000N.safetensors and the index. Files appear in finish() only, the index last.
class ShardedSafetensorsWriter final : public TensorWriter {
 public:
  // Every shard is an open file until all are whole, and so it is where they are read.
  static constexpr size_t kMostShards = 400;
  // A tensor larger than `max_shard_bytes` has a shard of its own. Throws UsageError for a limit
  // that makes too many.
  ShardedSafetensorsWriter(const std::filesystem::path& directory, std::vector<TensorInfo> tensors,
                           const TensorSource::Metadata& metadata = {},
                           uint64_t max_shard_bytes = kDefaultShardBytes);

 private:
  void do_begin(const TensorInfo& tensor) override;
  void do_write(std::span<const std::byte> bytes) override;
  void do_finish() override;

  std::filesystem::path directory_;
  std::vector<size_t> shard_begin_;  // first tensor of each shard
  std::vector<std::unique_ptr<AtomicFile>> files_;
  size_t begun_ = 0;    // tensors begun
  size_t current_ = 0;  // shard being written
};

}  // namespace nibble
