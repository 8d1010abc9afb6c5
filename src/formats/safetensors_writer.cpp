// SPDX-License-Identifier: MIT
#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/durable/directories.h"
#include "core/error.h"
#include "core/progress.h"
#include "formats/safetensors.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

// Length and JSON, padded with spaces so that the payload starts at a multiple of 8.
std::string header_text(std::span<const TensorInfo> tensors,
                        const TensorSource::Metadata& metadata) {
  std::string json = "{";
  const auto separate = [&json] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      json += quoted(key) + ":" + quoted(value);
    }
    json += '}';
  }
  uint64_t offset = 0;
  for (const TensorInfo& t : tensors) {
    separate();
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quoted(t.name), safetensors_dtype_name(t.dtype), fmt::join(t.shape, ","),
                        offset, offset + t.n_bytes);
    offset += t.n_bytes;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t n = json.size();
  return std::string(reinterpret_cast<const char*>(&n), sizeof(n)) + json;
}

const std::string kNoHash(64, '0');
constexpr uint64_t kCheckedPiece = 4 << 20;

// Where in the file the digits of the hash are. The first entry of that name is the one: names of
// tensors come after the metadata, and texts have their quotes escaped.
uint64_t checksum_place(std::string_view header) {
  const std::string before = quoted(kChecksumKey) + ":\"";
  const size_t at = header.find(before);
  if (at == std::string_view::npos || header.size() - at < before.size() + kNoHash.size()) {
    throw_format("the checksum of a header has no place");
  }
  return at + before.size();
}

std::vector<size_t> split_into_shards(std::span<const TensorInfo> tensors, uint64_t max_bytes) {
  std::vector<size_t> begin{0};
  uint64_t used = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (used != 0 && used + tensors[i].n_bytes > max_bytes) {
      begin.push_back(i);
      used = 0;
    }
    used += tensors[i].n_bytes;
  }
  return begin;
}

std::string shard_name(size_t i, size_t n) {
  return n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

constexpr size_t kHashedBeside = size_t(1) << 20;  // shorter pieces are not worth a thread
constexpr const char* kIndexName = "model.safetensors.index.json";

// Old and new files of one directory must not mix: a reader would find two models in it.
void refuse_mixture(const fs::path& directory, size_t shards) {
  const auto refuse = [&](const fs::path& found) {
    if (fs::exists(found)) {
      throw_usage("{} already exists: choose another directory, or remove it first",
                  found.string());
    }
  };
  refuse(directory / kIndexName);
  if (shards > 1) refuse(directory / shard_name(0, 1));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorInfo> tensors,
                                     const TensorSource::Metadata& metadata, Checksum checksum,
                                     Existing existing)
    : TensorWriter(std::move(tensors)), file_(path, existing) {
  TensorSource::Metadata all = metadata;
  if (checksum == Checksum::quick) {
    hash_.emplace();
    all[kChecksumKey] = kNoHash;
  }
  const std::string header = header_text(this->tensors(), all);
  file_.write(header);
  if (!hash_) return;
  hash_at_ = checksum_place(header);
  hash_->update(header);
}

void SafetensorsWriter::do_write(std::span<const std::byte> bytes) {
  if (!hash_ || bytes.size() < kHashedBeside) {
    if (hash_) hash_->update(bytes);
    return file_.write(bytes);
  }
  // The hash costs a tenth of the writing: beside it, it costs nothing.
  std::future<void> hashed;
  try {
    hashed = std::async(std::launch::async, [&] { hash_->update(bytes); });
  } catch (const std::system_error&) {  // no thread can be started
    hash_->update(bytes);
  }
  file_.write(bytes);  // should it throw, the future waits for the thread
  if (hashed.valid()) hashed.get();
}

void SafetensorsWriter::do_finish() {
  if (hash_) file_.rewrite(hash_at_, hash_->finish());
  file_.commit();
}

std::string find_damage(const fs::path& path) {
  const InputFile file(path);
  const SafetensorsHeader known = read_safetensors_header(file);
  const auto entry = known.metadata.find(kChecksumKey);
  if (entry == known.metadata.end() || entry->second.size() != kNoHash.size()) {
    return "it has no checksum";
  }
  uint64_t header_bytes = 0;
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  std::string piece(size_t(sizeof header_bytes + header_bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(piece)));
  piece.replace(checksum_place(piece), kNoHash.size(), kNoHash);
  QuickHash hash;
  Progress progress("checking " + path.filename().string(), file.size());
  for (uint64_t at = 0; at < file.size();) {
    if (at > 0) {
      piece.resize(size_t(std::min<uint64_t>(kCheckedPiece, file.size() - at)));
      file.read(at, std::as_writable_bytes(std::span(piece)));
    }
    hash.update(piece);
    at += piece.size();
    progress.update(at);
  }
  return hash.finish() == entry->second ? "" : "its bytes are not those that were written";
}

ShardedSafetensorsWriter::ShardedSafetensorsWriter(const fs::path& directory,
                                                   std::vector<TensorInfo> tensors,
                                                   const TensorSource::Metadata& metadata,
                                                   uint64_t max_shard_bytes)
    : TensorWriter(std::move(tensors)), directory_(directory) {
  const std::span<const TensorInfo> all = this->tensors();
  shard_begin_ = split_into_shards(all, max_shard_bytes);
  if (shard_begin_.size() > kMostShards) {
    throw_usage(
        "shards of at most {} bytes are {} files for {} bytes of weights: {} is the most, so "
        "make them larger",
        max_shard_bytes, shard_begin_.size(), payload_bytes(), kMostShards);
  }
  refuse_mixture(directory, shard_begin_.size());
  make_directories(directory);
  for (size_t i = 0; i < shard_begin_.size(); ++i) {
    const size_t begin = shard_begin_[i];
    const size_t end = i + 1 < shard_begin_.size() ? shard_begin_[i + 1] : all.size();
    files_.push_back(std::make_unique<AtomicFile>(directory / shard_name(i, shard_begin_.size())));
    files_.back()->write(header_text(all.subspan(begin, end - begin), metadata));
  }
}

void ShardedSafetensorsWriter::do_begin(const TensorInfo&) {
  if (current_ + 1 < shard_begin_.size() && begun_ == shard_begin_[current_ + 1]) ++current_;
  ++begun_;
}

void ShardedSafetensorsWriter::do_write(std::span<const std::byte> bytes) {
  files_[current_]->write(bytes);
}

void ShardedSafetensorsWriter::do_finish() {
  for (const auto& file : files_) file->commit();
  if (files_.size() == 1) return;
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = payload_bytes();
  size_t shard = 0;
  for (size_t i = 0; i < tensors().size(); ++i) {
    if (shard + 1 < shard_begin_.size() && i == shard_begin_[shard + 1]) ++shard;
    index["weight_map"][tensors()[i].name] = shard_name(shard, files_.size());
  }
  replace_file(directory_ / kIndexName, index.dump(2) + "\n");
}

}  // namespace nibble
