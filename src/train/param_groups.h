// SPDX-License-Identifier: MIT
// Which parameters are trained, and how fast: --lr-scale patterns and --train-last-layers applied
// to the parameter table.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/params.h"
#include "train/settings.h"

namespace nibble {

// "lm_head=5,embed_tokens=0.5,layers.0-7=0.1". Throws UsageError naming what is wrong.
std::vector<LrScale> parse_lr_scales(std::string_view text);

struct ParamGroups {
  std::vector<ParamSpec> table;
  std::vector<double> scale;     // of the learning rate, per parameter; 0: frozen
  std::vector<uint8_t> trained;  // scale != 0; 0 for the head of a tied model or a scalar loss

  int64_t trained_parameters() const;  // elements
  int64_t trained_tensors() const;
  std::string describe() const;  // "full-parameter: 310 tensors, 4.02 G elements"
};

// The layer a parameter belongs to in the sense of PassHooks (model/decoder.h): L .. -1.
int64_t layer_of(const ParamSpec& param, const Config& config);

// `config` says whether the head is tied. Throws UsageError for a pattern that matches nothing,
// for the head of a tied model, and when nothing is left to train.
ParamGroups make_param_groups(const Config& config, const TrainSettings& settings);

}  // namespace nibble
