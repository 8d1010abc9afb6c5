// SPDX-License-Identifier: MIT
// What config.json says of NVFP4 that other programs are to read.
#pragma once
#include <string>
#include <vector>

#include "formats/nvfp4_names.h"

namespace nibble {

struct OutputQuantization {
  Nvfp4Names names = Nvfp4Names::nibble;   // nibble: nothing is said
  std::vector<std::string> dense_modules;  // linear layers that are not packed
  bool input_scales = false;               // inputs are quantised, too, by fixed scales
};

// config.json with the quantization_config of the output, and without another's.
std::string with_quantization(const std::string& config_json, const OutputQuantization& output);
// hf_quant_config.json, which ModelOpt's readers want beside it.
std::string modelopt_quant_config(const OutputQuantization& output);

}  // namespace nibble
