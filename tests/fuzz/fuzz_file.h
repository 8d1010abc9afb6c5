// SPDX-License-Identifier: MIT
// A fuzz input as a file: parsers read files, and a memory file keeps the disk out of it.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/tensor_source.h"
#include "formats/weights.h"

namespace nibble::fuzz {

class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, data, size) != ssize_t(size)) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Reads everything a source claims to have, raw and as weights.
inline void read_everything(const TensorSource& source) {
  for (const TensorInfo& t : source.tensors()) {
    std::vector<std::byte> bytes(size_t(t.n_bytes));
    source.read(t, 0, bytes);
  }
  const WeightIndex index(source);
  for (const LogicalTensor& t : index.tensors()) {
    try {
      if (t.packed()) {
        std::vector<uint8_t> codes(size_t(t.numel() / 2)), scales(size_t(t.numel() / 16));
        read_nvfp4_rows(source, t, 0, t.rows, codes.data(), scales.data());
        read_global_scale(source, t);
        read_input_scale(source, t);
      } else {
        std::vector<float> x(size_t(t.numel()));
        read_rows_f32(source, t, 0, t.rows, x.data());
      }
    } catch (const FormatError&) {  // this tensor only; the others are still worth reading
    }
  }
}

// Parses, reads, and writes the tensors again with `rewrite`. A FormatError is a right answer;
// any other exception escapes and is a finding.
template <class Open, class Rewrite>
void parse(const uint8_t* data, size_t size, Open&& open, Rewrite&& rewrite) {
  const MemoryFile file(data, size);
  try {
    const auto source = open(file.path());
    rewrite(*source);
    read_everything(*source);
  } catch (const FormatError&) {
  }
}

}  // namespace nibble::fuzz
