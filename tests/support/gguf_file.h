// SPDX-License-Identifier: MIT
// Builds the bytes of GGUF files for tests: right ones, and with each rule broken on request.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/gguf/block_types.h"
#include "formats/gguf/metadata.h"

namespace nibble::test {

template <class T>
std::string little_endian(T value) {
  std::string s(sizeof value, '\0');
  std::memcpy(s.data(), &value, sizeof value);
  return s;
}
inline std::string gguf_string(std::string_view text) {
  return little_endian(uint64_t(text.size())) + std::string(text);
}

class GgufFile {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // innermost first, as in the file
    uint32_t type = 0;
    std::string bytes;
    uint64_t offset = 0;
  };

  uint32_t version = 3;
  uint64_t alignment = 32;
  std::string magic = "GGUF";
  int64_t more_tensors = 0, more_keys = 0;  // added to the counts of the header
  std::vector<Tensor> tensors;

  // A key with a type and the bytes of its value.
  void raw(std::string_view key, GgufType type, const std::string& bytes) {
    keys_ += gguf_string(key) + little_endian(uint32_t(type)) + bytes;
    ++n_keys_;
  }
  void text(std::string_view key, std::string_view value) {
    raw(key, GgufType::string, gguf_string(value));
  }
  void u32(std::string_view key, uint32_t value) { raw(key, GgufType::u32, little_endian(value)); }
  void f32(std::string_view key, float value) { raw(key, GgufType::f32, little_endian(value)); }
  void flag(std::string_view key, bool value) {
    raw(key, GgufType::boolean, little_endian(uint8_t(value)));
  }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::string s =
        little_endian(uint32_t(GgufType::string)) + little_endian(uint64_t(values.size()));
    for (const std::string& v : values) s += gguf_string(v);
    raw(key, GgufType::array, s);
  }
  void integers(std::string_view key, const std::vector<int32_t>& values) {
    std::string s = little_endian(uint32_t(GgufType::i32)) + little_endian(uint64_t(values.size()));
    for (const int32_t v : values) s += little_endian(v);
    raw(key, GgufType::array, s);
  }

  // Placed behind the last one.
  Tensor& add(std::string name, std::vector<uint64_t> dims, uint32_t type, std::string bytes) {
    uint64_t at = 0;
    if (!tensors.empty()) at = padded(tensors.back().offset + tensors.back().bytes.size());
    return tensors.emplace_back(
        Tensor{std::move(name), std::move(dims), type, std::move(bytes), at});
  }
  Tensor& add_f32(std::string name, std::vector<uint64_t> dims, const std::vector<float>& values) {
    return add(std::move(name), std::move(dims), 0,
               std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }

  std::string header() const {
    std::string s = magic + little_endian(version);
    s += little_endian(uint64_t(int64_t(tensors.size()) + more_tensors));
    s += little_endian(uint64_t(n_keys_ + more_keys)) + keys_;
    for (const Tensor& t : tensors) {
      s += gguf_string(t.name) + little_endian(uint32_t(t.dims.size()));
      for (const uint64_t d : t.dims) s += little_endian(d);
      s += little_endian(t.type) + little_endian(t.offset);
    }
    return s;
  }
  std::string bytes() const {
    std::string s = header();
    if (tensors.empty()) return s;
    s.resize(padded(s.size()));
    const size_t begin = s.size();
    for (const Tensor& t : tensors) {
      if (t.offset > 1 << 30) continue;  // broken on purpose
      if (s.size() < begin + t.offset + t.bytes.size()) s.resize(begin + t.offset + t.bytes.size());
      s.replace(begin + t.offset, t.bytes.size(), t.bytes);
    }
    return s;
  }
  void write(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << bytes();
  }

 private:
  uint64_t padded(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }
  std::string keys_;
  int64_t n_keys_ = 0;
};

}  // namespace nibble::test
