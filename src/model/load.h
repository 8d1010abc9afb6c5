// SPDX-License-Identifier: MIT
// From a weight file to weights in backend memory, streamed row by row: beside the model itself
// only a few MiB of staging exist.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "formats/weights.h"
#include "model/param_reader.h"
#include "model/weights.h"
#include "quant/nvfp4.h"

namespace nibble {

struct LoadOptions {
  // Linear layers: as the file has them, or quantised while loading (nvfp4), or dense (bf16).
  std::optional<Recipe> recipe;
  std::optional<Recipe> head_recipe;  // the head alone; default: like the others
  ScaleRule scale_rule = ScaleRule::four_over_six;
  // Overrides the types of everything dense; the reference backend computes in one type.
  std::optional<DType> dtype;
  // What blocks of a GGUF become where they stay dense: they have no type of their own.
  DType expanded = DType::f32;
  NotFinite not_finite = NotFinite::refuse;
};

struct Model {
  Config config;
  Weights weights;
  Arena memory{"weights"};
  std::string summary;  // one line: what was loaded, how it is held
  // Called before a block's weights are read, where they are made on demand; usually none.
  std::function<void(int64_t layer)> weights_needed = {};
};

// Reads every parameter of `config` from the source. Missing, mis-shaped or unusable tensors are
// FormatErrors that list all of them; tensors the model does not have are named in a warning.
// DeviceError when the weights do not fit into memory.
Model load_model(Backend& backend, const Config& config, const TensorSource& source,
                 const LoadOptions& options);

// The two halves of load_model for whoever has memory of his own: how the weights will be held, and
// reading them into memory made for that layout.
WeightLayout weight_layout(const Config& config, const TensorSource& source,
                           const LoadOptions& options);
void read_weights(Backend& backend, Weights& weights, const Config& config,
                  const TensorSource& source, const WeightLayout& layout,
                  const LoadOptions& options);

// Before anything is read: whether a linear layer of a block will be held as NVFP4.
bool loads_packed(const Config& config, const TensorSource& source, const LoadOptions& options);
// Bytes the weights will take, without reading them.
size_t weight_bytes(const Backend& backend, const Config& config, const TensorSource& source,
                    const LoadOptions& options);

}  // namespace nibble
