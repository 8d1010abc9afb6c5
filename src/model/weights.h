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

struct BlockWeights {
  Tensor attn_norm;       // [C]
  LinearWeight qkv;       // [(Hq + 2 Hkv) D, C]: q, k, v rows stacked
  Tensor q_norm, k_norm;  // [D]
  LinearWeight attn_out;  // [C, Hq D]
  Tensor ffn_norm;        // [C]
  LinearWeight gate_up;   // [2 F, C]: gate, up rows stacked
  LinearWeight down;      // [C, F]
};

struct Weights {
  Tensor embed;  // [V, C]
  std::vector<BlockWeights> block;
  Tensor final_norm;  // [C]
  LinearWeight head;  // [V, C]; its dense tensor may be `embed` itself
};

// How one linear weight is held.
struct LinearLayout {
  std::optional<DType> dense;  // empty: packed NVFP4
  bool row_scale = false;      // has per-tensor global scales
  bool kept = true;            // false: only its shape, no memory
};

struct WeightLayout {
  DType embed = DType::f32;
  DType norm = DType::f32;
  std::vector<LinearLayout> linear;  // per block: qkv, attn_out, gate_up, down
  LinearLayout head;
  bool head_is_embed = false;  // dense tied head: one tensor, two uses
};

// The four linear slots of a block, in the order of WeightLayout::linear.
inline constexpr ParamSlot kLinearSlots[] = {ParamSlot::qkv, ParamSlot::attn_out,
                                             ParamSlot::gate_up, ParamSlot::down};

// Takes the matrices of the model from one arena and its norms from another; on measuring arenas
// that is their size.
Weights make_weights(Arena& matrices, Arena& norms, const Backend& backend, const Config& config,
                     const WeightLayout& layout);
inline Weights make_weights(Arena& arena, const Backend& backend, const Config& config,
                            const WeightLayout& layout) {
  return make_weights(arena, arena, backend, config, layout);
}

// The memory of a table entry: exactly one of the two is set.
using SlotRef = Slot<Tensor, LinearWeight>;
SlotRef slot_of(Weights& weights, const ParamSpec& param);

}  // namespace nibble
