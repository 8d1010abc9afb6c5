// SPDX-License-Identifier: MIT
// A model's weights in backend memory, and the layout that decides their types.
#pragma once
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/params.h"
#include "model/slots.h"

namespace nibble {

using BlockWeights = BlockSlots<Tensor, LinearWeight>;
using Weights = ModelSlots<Tensor, LinearWeight>;  // the head's dense tensor may be `embed` itself
using SlotRef = Slot<Tensor, LinearWeight>;

// Linear layers of a block.
inline constexpr size_t kBlockLinears = BlockWeights::linears().size();

// How one linear weight is held.
struct LinearLayout {
  std::optional<DType> dense;  // empty: packed NVFP4
  bool row_scale = false;      // has per-tensor global scales
  bool kept = true;            // false: only its shape, no memory
};

struct WeightLayout {
  DType embed = DType::f32;
  DType norm = DType::f32;
  std::vector<LinearLayout> linear;  // [L, kBlockLinears], in the order of linears()
  LinearLayout head;
  bool head_is_embed = false;  // dense tied head: one tensor, two uses
};

// Takes the matrices of the model from one arena, its norms and biases from another; on measuring
// arenas that is their size.
Weights make_weights(Arena& matrices, Arena& norms, const Backend& backend, const Config& config,
                     const WeightLayout& layout);
inline Weights make_weights(Arena& arena, const Backend& backend, const Config& config,
                            const WeightLayout& layout) {
  return make_weights(arena, arena, backend, config, layout);
}

}  // namespace nibble
