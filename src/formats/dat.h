// SPDX-License-Identifier: MIT
// The .dat container: LEB128 entry count, then per entry key, element type code, dimensions and
// payload; no index, no padding, no magic. docs/formats.md has the layout.
// Unlike older readers, a repeated key or trailing bytes are errors here: both mean damage.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "formats/tensor_source.h"
#include "formats/tensor_writer.h"

namespace nibble {

// What a type code stores; nullopt for codes that are not part of the format (4711, ...).
// 100 (packed E2M1 pairs, one byte per stored element) is presented as u8.
std::optional<DType> dat_code_dtype(uint64_t code);
// The code a new file uses for a dtype: 0 u8, 1 i8, 2 i16, 3 i32, 4 i64, 5 f16, 6 f32, 7 f64,
// 11 bool, 15 bf16, 101 f8_e4m3. Throws InternalError for c128.
int dat_code_for(DType dtype);

// Walks the headers and skips the payloads: a few reads per entry, whatever the file's size.
std::vector<TensorInfo> scan_dat(const InputFile& file);
std::unique_ptr<TensorSource> open_dat(const std::filesystem::path& path);

class DatWriter final : public TensorWriter {
 public:
  // Each tensor needs name, shape and dat_code; dat_code -1 takes dat_code_for(dtype).
  DatWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors);

 private:
  void do_begin(const TensorInfo& tensor) override;
  void do_write(std::span<const std::byte> bytes) override;
  void do_finish() override;
  AtomicFile file_;
};

}  // namespace nibble
