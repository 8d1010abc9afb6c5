// SPDX-License-Identifier: MIT
// Writes a GGUF, version 3: metadata and the list of tensors first, then their payloads, each
// padded to the alignment. A tensor that has TensorInfo::blocks is appended as blocks, the others
// as they are stored.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "formats/gguf/metadata.h"
#include "formats/tensor_writer.h"

namespace nibble {

class GgufWriter final : public TensorWriter {
 public:
  static constexpr uint64_t kAlignment = 32;  // what a file without general.alignment means
  GgufWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
             const GgufMetadata& metadata);

 private:
  void do_begin(const TensorInfo& tensor) override;
  void do_write(std::span<const std::byte> bytes) override;
  void do_finish() override;
  void pad();
  AtomicFile file_;
};

}  // namespace nibble
