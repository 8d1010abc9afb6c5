// SPDX-License-Identifier: MIT
// What training made of a model's parameters, wherever that lies: in the memory of a run, or in a
// checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/params.h"
#include "quant/nvfp4.h"

namespace nibble {

class TrainedValues {
 public:
  virtual ~TrainedValues() = default;
  virtual const std::vector<ParamSpec>& table() const = 0;
  virtual bool trained(size_t i) const = 0;  // table()[i]
  virtual bool tied() const = 0;             // the head is the embedding, as it was trained
  virtual ScaleRule rule() const = 0;        // how changed blocks are quantised
  // The type of a parameter's dense master (a tied head's is the embedding's); none: it has none.
  virtual std::optional<DType> master_type(const ParamSpec& param) const = 0;
  // So many of its values, in the order they are stored.
  virtual std::vector<float> master(const ParamSpec& param, int64_t begin, int64_t count) const = 0;
  // Canonical rows of the NVFP4 weight the forward saw; false: none is kept.
  virtual bool packed(const ParamSpec& param, int64_t row, int64_t rows, std::span<uint8_t> codes,
                      std::span<uint8_t> scales) const = 0;
};

}  // namespace nibble
