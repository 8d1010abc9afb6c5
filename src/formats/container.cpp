// SPDX-License-Identifier: MIT
#include "formats/container.h"

#include "core/error.h"
#include "formats/dat.h"
#include "formats/safetensors.h"

namespace nibble {

Container container_for(const std::filesystem::path& path) {
  if (path.extension() == ".dat") return Container::dat;
  if (path.extension() == ".safetensors") return Container::safetensors;
  return Container::directory;
}

std::unique_ptr<TensorWriter> make_writer(Container container, const std::filesystem::path& out,
                                          std::vector<TensorInfo> tensors) {
  const TensorSource::Metadata metadata = {{"format", "pt"}};  // transformers insists on it
  switch (container) {
    case Container::dat: return std::make_unique<DatWriter>(out, std::move(tensors));
    case Container::safetensors:
      return std::make_unique<SafetensorsWriter>(out, std::move(tensors), metadata);
    case Container::directory:
      return std::make_unique<ShardedSafetensorsWriter>(out, std::move(tensors), metadata);
  }
  throw_internal("container {}", int(container));
}

}  // namespace nibble
