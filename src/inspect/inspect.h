// SPDX-License-Identifier: MIT
// What a weight file holds and whether it is sound: every pair, every value, every name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "formats/weights.h"
#include "model/config.h"
#include "quant/nvfp4.h"

namespace nibble {

struct TensorReport {
  std::string name;
  bool packed = false;
  std::vector<int64_t> shape;
  std::string stored;  // "f16 (code 5)", "nvfp4 (codes 0, scales 101)"
  uint64_t n_bytes = 0;
  bool has_values = false;  // false for integers and for damaged tensors: no statistics

  double min = 0, max = 0, mean = 0, rms = 0;  // of finite values; NVFP4: dequantised
  int64_t nan = 0, infinite = 0;
  // NVFP4 only.
  double zero_codes = 0;  // share of codes with magnitude 0
  float scale_min = 0, scale_max = 0, global_scale = 1;

  // What quantisation cost. Where the unquantised values are not at hand, relative_rms is an
  // estimate and max_abs unknown.
  enum class ErrorBasis { none, estimate, embedding, reference };
  ErrorBasis basis = ErrorBasis::none;
  double relative_rms = 0, max_abs = 0;

  std::vector<std::string> problems;
};

struct InspectReport {
  std::vector<TensorReport> tensors;
  std::vector<std::string> problems;  // of the file as a whole
  std::vector<std::string> notes;

  bool damaged() const;
};

struct InspectSettings {
  bool payload = true;                     // false: headers only
  const Config* config = nullptr;          // compare with the parameter table
  const WeightIndex* reference = nullptr;  // the unquantised source of this file
};

// Never throws for damage that can be named and passed by: it is in the report.
InspectReport inspect_weights(const TensorSource& source, const InspectSettings& settings,
                              ThreadPool& pool);

// The expected squared error of a block (8 code bytes) in units of its squared scale, when the
// original values are not at hand. Each is taken as evenly spread over the interval that rounds to
// its code. Where the largest code is 4 or 6, the largest value has set the scale: it is off by
// the scale's own rounding only, and no other value lies above it. For Gaussian weights the root
// comes out 2 % above the truth with amax/6 scales and up to a fifth above it with adaptive ones.
double expected_squared_error(const uint8_t* codes);

}  // namespace nibble
