// SPDX-License-Identifier: MIT
// The kinds of weight files a model can be written to.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "formats/tensor_writer.h"

namespace nibble {

// A .dat file, one .safetensors file, or a directory as the Hugging Face tools write it.
enum class Container { dat, safetensors, directory };
// By the name: .dat, .safetensors, anything else is a directory.
Container container_for(const std::filesystem::path& path);
// A directory must exist.
std::unique_ptr<TensorWriter> make_writer(Container container, const std::filesystem::path& out,
                                          std::vector<TensorInfo> tensors);

}  // namespace nibble
