// SPDX-License-Identifier: MIT
// Signs of a broken model: values that are not finite in weights or activations, replies that say
// nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/engine.h"

namespace nibble {

struct BadValues {
  std::string place;    // "model.norm.weight", "layers.3.attn_out"
  std::string problem;  // "2 NaN, 0 Inf, the first at element 17"
};

// NaN and Inf among `values`, or nothing. `width` is the length of a row, for the message.
std::optional<BadValues> find_bad_values(const std::string& place, std::span<const float> values,
                                         int64_t width);

struct WeightHealth {
  std::vector<BadValues> bad;
  int64_t tensors = 0, values = 0;  // looked at; of a packed weight the scales
  std::string largest_name;         // parameter with the largest magnitude
  float largest = 0;
};
// Every norm, dense weight and NVFP4 scale as the backend holds them.
WeightHealth check_weights(Backend& backend, const Model& model);

struct ActivationHealth {
  std::optional<BadValues> first_bad;  // in the order of the run
  int64_t tensors = 0;
  std::string largest_name;
  float largest = 0;
};
// Runs `tokens` through the engine's own path and looks at every named intermediate.
ActivationHealth check_activations(Backend& backend, const Model& model,
                                   const EngineOptions& options, std::span<const int32_t> tokens);

// Why a reply is what broken weights print, or nothing: token 0 four times in a row, "!!!!" in the
// text, or one token and no other. Replies of fewer than four tokens are never judged.
std::optional<std::string> collapse_reason(std::span<const int32_t> ids, std::string_view text);

// Why a reply goes round in circles, or nothing: collapse_reason, or somewhere in it a phrase of at
// most 32 tokens, or of at most 32 characters, four times in a row (a single one: sixteen times).
std::optional<std::string> repetition_reason(std::span<const int32_t> ids, std::string_view text);

}  // namespace nibble
