// SPDX-License-Identifier: MIT
// AdamW as values: how the moments are stored, and what one step is told. The arithmetic of one
// element is in optim/adamw_element.h, that of a block of moments in optim/moments.h; backends loop
// over them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nibble {

// Elements of the flattened parameter that share a scale; ranges of a step begin at multiples.
constexpr int64_t kMomentBlock = 256;

enum class MomentFormat {
  f32,
  bf16,         // stochastically rounded
  int8,         // m: signed dynamic map, nearest; v: logarithmic without zero, stochastic
  int8_linear,  // both linear, nearest: the failure of a code with zero, for experiments
  nvfp4,        // m, and the square root of v, two-level scales
};
std::string_view moment_format_name(MomentFormat format);

// Bytes of one moment of a parameter with n elements: codes, padded to whole blocks, then scales.
size_t moment_bytes(MomentFormat format, int64_t n);

enum class UpdateFrom {
  master,
  quantised,  // the packed copy: what kept the predecessor from learning, for experiments
};

// How a master of bf16 is rounded after its update; one of fp32 is not.
enum class MasterRounding {
  stochastic,  // right on average: small updates add up
  nearest,     // an update below half a step of bf16 is lost each time, for experiments
};
std::string_view master_rounding_name(MasterRounding rounding);

struct AdamwStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  // 1 - beta^t, computed in double by the caller.
  float bias1 = 1, bias2 = 1;
  // Multiplies every gradient first: the clip factor over the loss scale.
  float grad_scale = 1;
  // Random bits are philox(seed, stream, element): the caller makes the stream from step and
  // parameter.
  uint64_t seed = 0, stream = 0;
  // Where the tensors are a part of the parameter: its elements before theirs, whole blocks. Random
  // bits and packed rows count from there.
  int64_t first = 0;
  UpdateFrom from = UpdateFrom::master;
  MasterRounding rounding = MasterRounding::stochastic;
};

}  // namespace nibble
