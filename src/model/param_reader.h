// SPDX-License-Identifier: MIT
// One parameter of a weight file into its place in backend memory, a few rows at a time.
#pragma once
#include <span>
#include <vector>

#include "backend/backend.h"
#include "formats/weights.h"
#include "model/config.h"
#include "model/params.h"
#include "quant/nvfp4.h"

namespace nibble {

// The logical tensor a parameter is read from: itself, or the embedding for a tied head that the
// file does not store. Null when there is none.
const LogicalTensor* source_of(const WeightIndex& index, const Config& config,
                               const ParamSpec& param);

// Throws a FormatError that lists every missing, mis-shaped or unusable tensor: a list helps more
// than the first of many. Warns of tensors the model does not have.
void check_parameters(const WeightIndex& index, const Config& config,
                      std::span<const ParamSpec> table);

// Writes floats into a tensor of any float type.
void upload_floats(Backend& backend, Tensor dst, const float* values,
                   std::vector<std::byte>& staging);

class ParameterReader {
 public:
  ParameterReader(Backend& backend, const WeightIndex& index, ScaleRule rule)
      : be_(backend), source_(index.source()), rule_(rule) {}

  void read_tensor(Tensor dst, const LogicalTensor& t);
  // Into rows param.row_offset.. of `w`: converted, or quantised by the rule where the file holds
  // floats and w is packed.
  void read_linear(const LinearWeight& w, const ParamSpec& param, const LogicalTensor& t);

 private:
  template <class F>
  void for_each_chunk(const LogicalTensor& t, F&& f);
  void dense_rows(Tensor dst, const LogicalTensor& t, int64_t row, int64_t count);
  void packed_rows(const LinearWeight& w, int64_t dst_row, const LogicalTensor& t, int64_t row,
                   int64_t count);
  void read_floats(const LogicalTensor& t, int64_t row, int64_t count);
  void read_canonical(const LogicalTensor& t, int64_t row, int64_t count);

  Backend& be_;
  const TensorSource& source_;
  ScaleRule rule_;
  std::vector<float> floats_;
  std::vector<uint8_t> codes_, scales_;
  std::vector<std::byte> bytes_;
};

}  // namespace nibble
