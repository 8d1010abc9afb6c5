// SPDX-License-Identifier: MIT
#include "formats/container.h"

#include <algorithm>

#include "core/error.h"
#include "formats/dat.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/safetensors.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr FormatRow kFormats[] = {
    {ModelFormat::hf, "hf", Container::directory, Nvfp4Names::nibble, "",
     "a directory of Hugging Face: config.json, tokenizer, safetensors"},
    {ModelFormat::dat, "dat", Container::dat, Nvfp4Names::nibble, ".dat",
     "nibble's and its predecessor's weight file"},
    {ModelFormat::safetensors, "safetensors", Container::safetensors, Nvfp4Names::nibble,
     ".safetensors", "one file of weights"},
    {ModelFormat::gguf, "gguf", Container::gguf, Nvfp4Names::nibble, ".gguf",
     "one file with everything: llama.cpp, Ollama"},
    {ModelFormat::compressed_tensors, "compressed-tensors", Container::directory,
     Nvfp4Names::compressed_tensors, "", "a directory with NVFP4 as vLLM and transformers take it"},
    {ModelFormat::modelopt, "modelopt", Container::directory, Nvfp4Names::modelopt, "",
     "a directory with NVFP4 as TensorRT-LLM and vLLM take it"},
};

// What people may take for a model's file and nibble does not write.
constexpr std::string_view kOtherEndings[] = {
    ".bin",   ".pt",   ".pth", ".ckpt", ".onnx", ".h5",  ".npz",  ".npy", ".pkl",  ".msgpack",
    ".model", ".ggml", ".zip", ".gz",   ".tar",  ".tgz", ".json", ".txt", ".toml", ".md"};

std::string endings() {
  std::string all;
  for (const FormatRow& row : kFormats) {
    if (!row.ending.empty()) all += fmt::format("{}{}", all.empty() ? "" : ", ", row.ending);
  }
  return all;
}

}  // namespace

std::span<const FormatRow> format_table() { return kFormats; }

const FormatRow& format_row(ModelFormat format) {
  for (const FormatRow& row : kFormats) {
    if (row.format == format) return row;
  }
  throw_internal("model format {}", int(format));
}

std::vector<std::pair<std::string, ModelFormat>> format_names() {
  std::vector<std::pair<std::string, ModelFormat>> names;
  for (const FormatRow& row : kFormats) names.emplace_back(row.name, row.format);
  return names;
}

const FormatRow& format_for(const fs::path& path, std::optional<ModelFormat> to) {
  const std::string ending = path.extension().string();
  const auto named = std::ranges::find_if(
      kFormats, [&](const FormatRow& row) { return !row.ending.empty() && row.ending == ending; });
  const bool is_named = named != std::end(kFormats);
  const bool other = std::ranges::find(kOtherEndings, ending) != std::end(kOtherEndings);
  if (other && !fs::is_directory(path)) {
    throw_usage(
        "{}: nibble writes no '{}' files; {} are files of weights, and a name without one "
        "of these endings is a directory",
        path.string(), ending, endings());
  }
  if (!to) return is_named ? *named : format_row(ModelFormat::hf);
  const FormatRow& row = format_row(*to);
  if (is_named ? named->format == row.format : row.ending.empty()) return row;
  if (row.ending.empty()) {
    throw_usage("--to {} writes a directory, and {} is the name of a {} file: leave the ending out",
                row.name, path.string(), ending);
  }
  throw_usage("--to {} writes a file whose name ends in {}: {} does not", row.name, row.ending,
              path.string());
}

Container container_for(const fs::path& path) { return format_for(path).container; }

std::unique_ptr<TensorWriter> make_writer(Container container, const fs::path& out,
                                          std::vector<TensorInfo> tensors,
                                          const GgufMetadata& metadata, uint64_t max_shard_bytes) {
  const TensorSource::Metadata pt = {{"format", "pt"}};  // transformers insists on it
  switch (container) {
    case Container::dat: return std::make_unique<DatWriter>(out, std::move(tensors));
    case Container::safetensors:
      return std::make_unique<SafetensorsWriter>(out, std::move(tensors), pt);
    case Container::directory:
      return std::make_unique<ShardedSafetensorsWriter>(out, std::move(tensors), pt,
                                                        max_shard_bytes);
    case Container::gguf: return std::make_unique<GgufWriter>(out, std::move(tensors), metadata);
  }
  throw_internal("container {}", int(container));
}

}  // namespace nibble
