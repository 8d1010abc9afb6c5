// SPDX-License-Identifier: MIT
#include "formats/gguf/gguf.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "formats/gguf/block_types.h"
#include "formats/gguf/header.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostBlockElements = 256;
constexpr int64_t kChunkBytes = 1 << 16;  // of blocks, read at a time

// prefix-00001-of-00003.gguf
struct SplitName {
  std::string prefix;
  int64_t number = 0, count = 0;  // from 1

  static std::optional<SplitName> parse(const std::string& name) {
    constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
    if (name.size() <= kTail || !name.ends_with(".gguf")) return std::nullopt;
    const std::string tail = name.substr(name.size() - kTail);
    const auto digits = [&](size_t at) -> std::optional<int64_t> {
      int64_t n = 0;
      for (size_t i = at; i < at + 5; ++i) {
        if (tail[i] < '0' || tail[i] > '9') return std::nullopt;
        n = n * 10 + (tail[i] - '0');
      }
      return n;
    };
    const auto number = digits(1), count = digits(10);
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !number || !count) return std::nullopt;
    return SplitName{name.substr(0, name.size() - kTail), *number, *count};
  }
  std::string file(int64_t i) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i, count);
  }
};

// What a part says of itself must agree with its name.
void check_part(const GgufHeader& header, int64_t number, int64_t count) {
  const GgufMetadata& m = header.metadata;
  if (m.integer("split.count") != count) {
    throw_format("{}: split.count is {}, but the name says {} files", m.where(),
                 m.integer("split.count"), count);
  }
  if (m.integer("split.no") != number - 1) {
    throw_format("{}: split.no is {}, but by its name it is {}", m.where(), m.integer("split.no"),
                 number - 1);
  }
}

std::unique_ptr<GgufSource> open_split(const fs::path& directory, const SplitName& name) {
  if (name.number < 1 || name.number > name.count) {
    throw_format("{}: file {} of {} does not exist", (directory / name.file(name.number)).string(),
                 name.number, name.count);
  }
  std::vector<InputFile> files;
  std::vector<TensorInfo> tensors;
  GgufMetadata metadata;
  for (int64_t i = 1; i <= name.count; ++i) {
    const fs::path path = directory / name.file(i);
    if (!fs::exists(path)) {
      throw_format("{}: no such file; it is part {} of {} of this model", path.string(), i,
                   name.count);
    }
    files.emplace_back(path);
    GgufHeader header = read_gguf_header(files.back());
    check_part(header, i, name.count);
    for (TensorInfo& t : header.tensors) {
      t.file_index = int(i - 1);
      tensors.push_back(std::move(t));
    }
    if (i == 1) metadata = std::move(header.metadata);
  }
  const auto total = metadata.find_integer("split.tensors.count");
  if (total && *total != int64_t(tensors.size())) {
    throw_format("{}: split.tensors.count is {}, but the {} files hold {} tensors",
                 metadata.where(), *total, name.count, tensors.size());
  }
  return std::make_unique<GgufSource>(std::move(files), std::move(tensors), std::move(metadata));
}

}  // namespace

GgufSource::GgufSource(std::vector<InputFile> files, std::vector<TensorInfo> tensors,
                       GgufMetadata metadata)
    : TensorSource("gguf", std::move(files), std::move(tensors)), values_(std::move(metadata)) {}

void GgufSource::read(const TensorInfo& tensor, uint64_t byte_offset,
                      std::span<std::byte> out) const {
  if (!tensor.blocks) return TensorSource::read(tensor, byte_offset, out);
  check_range(tensor, byte_offset, out.size());
  expand(tensor, byte_offset, out);
}

void GgufSource::read_stored(const TensorInfo& tensor, uint64_t byte_offset,
                             std::span<std::byte> out) const {
  const uint64_t bytes = tensor.stored_bytes();
  if (byte_offset > bytes || out.size() > bytes - byte_offset) {
    throw_internal("stored bytes {} to {} of '{}', which has {}", byte_offset,
                   byte_offset + out.size(), tensor.name, bytes);
  }
  files()[size_t(tensor.file_index)].read(tensor.file_offset + byte_offset, out);
}

void GgufSource::expand(const TensorInfo& tensor, uint64_t byte_offset,
                        std::span<std::byte> out) const {
  const BlockType& type = *tensor.blocks;
  const uint64_t block = uint64_t(type.elements) * sizeof(float);  // expanded bytes
  const uint64_t chunk = uint64_t(kChunkBytes / type.bytes);
  const InputFile& file = files()[size_t(tensor.file_index)];
  std::vector<std::byte> raw;
  float one[kMostBlockElements];

  while (!out.empty()) {
    const uint64_t first = byte_offset / block, inside = byte_offset % block;
    const uint64_t wanted = (inside + out.size() + block - 1) / block;
    const uint64_t count = std::min(wanted, chunk);
    raw.resize(size_t(count) * size_t(type.bytes));
    file.read(tensor.file_offset + first * uint64_t(type.bytes), raw);
    const auto* from = reinterpret_cast<const uint8_t*>(raw.data());
    for (uint64_t i = 0; i < count && !out.empty();) {
      const uint64_t skip = byte_offset % block;
      const uint64_t whole = std::min(count - i, uint64_t(out.size()) / block);
      // The place moves by what was copied before: a range that begins inside a float ends up odd.
      const bool aligned = reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0;
      if (skip == 0 && whole > 0 && aligned) {
        type.expand(from + i * uint64_t(type.bytes), int64_t(whole),
                    reinterpret_cast<float*>(out.data()));
        out = out.subspan(size_t(whole * block));
        byte_offset += whole * block;
        i += whole;
        continue;
      }
      // A block that is wanted in part, or for a place that cannot hold floats.
      type.expand(from + i * uint64_t(type.bytes), 1, one);
      const size_t n = std::min<size_t>(out.size(), size_t(block - skip));
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(one) + skip, n);
      out = out.subspan(n);
      byte_offset += n;
      ++i;
    }
  }
}

std::unique_ptr<GgufSource> open_gguf(const fs::path& path) {
  if (const auto split = SplitName::parse(path.filename().string())) {
    if (split->count > 1) return open_split(path.parent_path(), *split);
  }
  std::vector<InputFile> files;
  files.emplace_back(path);
  GgufHeader header = read_gguf_header(files.front());
  const int64_t parts = header.metadata.find_integer("split.count").value_or(1);
  if (parts > 1) {
    throw_format(
        "{}: this is part {} of {} of a split model; its name must be NAME-{:05}-of-{:05}.gguf, "
        "beside the others",
        path.string(), header.metadata.find_integer("split.no").value_or(0) + 1, parts,
        header.metadata.find_integer("split.no").value_or(0) + 1, parts);
  }
  return std::make_unique<GgufSource>(std::move(files), std::move(header.tensors),
                                      std::move(header.metadata));
}

bool is_first_gguf(const fs::path& path) {
  const auto split = SplitName::parse(path.filename().string());
  return !split || split->number == 1;
}

bool looks_like_gguf(const fs::path& path) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return false;
  try {
    const InputFile file(path);
    char magic[4] = {};
    if (file.size() < sizeof magic) return false;
    file.read(0, std::as_writable_bytes(std::span(magic)));
    return std::string_view(magic, 4) == "GGUF";
  } catch (const FormatError&) {
    return false;
  }
}

}  // namespace nibble
