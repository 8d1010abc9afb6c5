// SPDX-License-Identifier: MIT
// Logical weights: a raw tensor, or the entries that together hold one NVFP4 matrix, in nibble's
// names, compressed-tensors' or ModelOpt's (formats/nvfp4_names.h). Broken groups are errors that
// name the tensor, never dropped in silence.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/nvfp4_names.h"
#include "formats/tensor_source.h"

namespace nibble {

struct LogicalTensor {
  enum class Kind { raw, nvfp4 };
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  Kind kind = Kind::raw;
  const TensorInfo* raw = nullptr;           // Kind::raw
  const TensorInfo* codes = nullptr;         // Kind::nvfp4: [rows, cols/2]
  const TensorInfo* scales = nullptr;        // [rows, cols/16]
  const TensorInfo* global_scale = nullptr;  // f32, one of them, may be absent
  const TensorInfo* input_scale = nullptr;   // likewise: what the layer's inputs are scaled by
  Nvfp4Names names = Nvfp4Names::nibble;     // whose parts these are
  std::vector<int64_t> shape;                // of the matrix the codes stand for
  // rank 2: its shape; rank 1: one row; higher: the outermost dimension and the rest.
  int64_t rows = 0, cols = 0;

  int64_t numel() const { return rows * cols; }
  bool packed() const { return kind == Kind::nvfp4; }
  uint64_t payload_bytes() const {  // without the global scale's four
    return packed() ? codes->n_bytes + scales->n_bytes : raw->n_bytes;
  }
};

// The logical tensors of a source, in the order of their first entry. Keeps pointers into the
// source, which must outlive it.
class WeightIndex {
 public:
  explicit WeightIndex(const TensorSource& source);
  WeightIndex(WeightIndex&&) = default;
  WeightIndex& operator=(WeightIndex&&) = default;
  WeightIndex(const WeightIndex&) = delete;  // by_name_ views tensors_
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  const LogicalTensor* find(std::string_view name) const;  // null when there is none
  const LogicalTensor& at(std::string_view name) const;    // throws FormatError naming it
  const TensorSource& source() const { return *source_; }

 private:
  const TensorSource* source_;
  std::vector<LogicalTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

// Rows of a packed tensor in canonical bytes: codes [row_count, cols/2], scales
// [row_count, cols/16] as E4M3. Old exports store f16 or f32 scales; each must be an E4M3 value
// exactly. NaN scales are an error.
void read_nvfp4_rows(const TensorSource& source, const LogicalTensor& tensor, int64_t row_begin,
                     int64_t row_count, uint8_t* codes, uint8_t* scales);
// What codes times scales are multiplied by, however the file puts it; 1 when absent.
float read_global_scale(const TensorSource& source, const LogicalTensor& tensor);
// The same of the layer's inputs; 0 when absent.
float read_input_scale(const TensorSource& source, const LogicalTensor& tensor);

// Rows of a raw f32, f16, bf16 or f64 tensor as float; integer types are an error.
void read_rows_f32(const TensorSource& source, const LogicalTensor& tensor, int64_t row_begin,
                   int64_t row_count, float* out);

}  // namespace nibble
