// SPDX-License-Identifier: MIT
#include "runtime/no_model.h"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string beginning(const fs::path& file) {
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return "";
  std::string bytes(256, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(bytes.data(), std::streamsize(bytes.size()));
  bytes.resize(size_t(std::max<std::streamsize>(0, in.gcount())));
  return bytes;
}

struct Kind {
  std::string_view name;  // the end of the file's name
  std::string_view is;
};

constexpr Kind kByName[] = {
    {".tsv", "a TSV file, which is data and no model: --train-data takes it"},
    {".csv", "a CSV file, which is data and no model: --train-data takes data"},
    {".jsonl", "a JSON Lines file, which is data and no model: --train-data takes it"},
    {".ndjson", "a JSON Lines file, which is data and no model: --train-data takes it"},
    {".txt", "a text file and no model"},
    {".md", "a text file and no model"},
    {".parquet", "a Parquet file, which is data and no model; data is read as .tsv or .jsonl"},
    {".index.json", ""},
    {".json", "a JSON file and no model: name the folder or the weights that it belongs to"},
    {".toml", "a TOML file and no model: --run-config takes it"},
    {".pt", "a PyTorch file; convert it to safetensors with the tools of its maker"},
    {".pth", "a PyTorch file; convert it to safetensors with the tools of its maker"},
    {".bin",
     "a PyTorch file, or one of llama.cpp's before GGUF; models are read as safetensors, "
     "GGUF or .dat"},
    {".ckpt", "a PyTorch file; convert it to safetensors with the tools of its maker"},
    {".onnx", "an ONNX file; models are read as safetensors, GGUF or .dat"},
    {".h5", "an HDF5 file; models are read as safetensors, GGUF or .dat"},
    {".npz", "a NumPy file; models are read as safetensors, GGUF or .dat"},
    {".zip", "a ZIP archive: unpack it, and name the folder"},
    {".gz", "a gzip archive: unpack it, and name the folder"},
    {".tar", "a tar archive: unpack it, and name the folder"},
};

}  // namespace

std::string why_no_model(const fs::path& file) {
  const std::string head = beginning(file);
  const auto begins = [&](std::string_view text) { return head.starts_with(text); };
  if (begins("GGUF")) return "";
  if (begins("version https://git-lfs")) {
    return "a pointer of Git LFS, not the file itself: git lfs pull or hf download fetches it";
  }
  if (begins("<!DOCTYPE") || begins("<!doctype") || begins("<html")) {
    return "a web page, as a download that failed leaves it";
  }
  if (begins("ggml") || begins("lmgg") || begins("tjgg") || begins("fmgg")) {
    return "a file of llama.cpp before GGUF; its tools convert it to GGUF";
  }
  std::string name = file.filename().string();
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; });
  for (const Kind& k : kByName) {
    if (name.ends_with(k.name)) return std::string(k.is);
  }
  return "";
}

}  // namespace nibble
