// SPDX-License-Identifier: MIT
// Copies of a model with chosen bytes changed.
#pragma once
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "formats/tensor_source.h"

namespace nibble::test {

inline void copy_model(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const char* name : {"config.json", "model.safetensors", "model-nvfp4.dat"}) {
    if (std::filesystem::exists(from / name)) {
      std::filesystem::copy_file(from / name, to / name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
  }
}

// Overwrites elements of a tensor in its file, from `element` on.
template <class T>
void poke_tensor(const std::filesystem::path& model, const std::string& name, int64_t element,
                 const std::vector<T>& values) {
  std::filesystem::path file;
  uint64_t offset = 0;
  {
    const auto source = open_tensor_source(model);
    const TensorInfo& t = source->at(name);
    file = source->files()[size_t(t.file_index)].path();
    offset = t.file_offset;
  }
  std::fstream f(file, std::ios::binary | std::ios::in | std::ios::out);
  f.seekp(std::streamoff(offset + uint64_t(element) * sizeof(T)));
  f.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size() * sizeof(T)));
}

}  // namespace nibble::test
