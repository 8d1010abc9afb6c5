// SPDX-License-Identifier: MIT
// The one table of a model's parameters: file names, shapes, and where each lives in memory.
// Loading, saving, conversion, initialisation, inspection and training iterate it; nothing else
// lists parameters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace nibble {

// The tensor in memory a parameter is (part of): q, k and v are stacked rows of one weight, and so
// are gate and up. NVFP4 scales belong to one row, so stacking loses nothing. The biases of q, k
// and v are stacked the same way.
enum class ParamSlot {
  embed,
  attn_norm,
  q_norm,
  k_norm,
  qkv,
  attn_out,
  ffn_norm,
  gate_up,
  down,
  final_norm,
  head,
  qkv_bias,  // last: the numbers choose random bits of gradients, which older runs have drawn
};

// A parameter of every block.
struct BlockParam {
  std::string_view name;  // "self_attn.q_proj.weight"
  ParamSlot slot;
  std::vector<int64_t> shape;  // [out, in], or [width] for norms and biases
  int64_t row_offset = 0;      // of its rows in a stacked slot
};
// In the order of a Hugging Face state dict.
std::vector<BlockParam> block_params(const Config& config);
// A whole slot of a block, with all that is stacked in it: [out, in] or [width]; empty where the
// model has no such slot.
std::vector<int64_t> slot_shape(const Config& config, ParamSlot slot);
// What the names of a block's linear layers have before ".weight": "q_proj", ...
std::vector<std::string_view> linear_layer_names();

struct ParamSpec {
  std::string name;  // Hugging Face name, e.g. model.layers.0.self_attn.q_proj.weight
  ParamSlot slot;
  int64_t layer;               // -1 outside the blocks
  std::vector<int64_t> shape;  // [out, in], or [width] for norms and biases
  int64_t row_offset = 0;      // as in BlockParam

  int64_t numel() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
  bool is_matrix() const { return shape.size() == 2; }
  // Weights the forward sees in NVFP4: every linear layer and the head, not embeddings, norms and
  // biases.
  bool is_linear() const { return is_matrix() && slot != ParamSlot::embed; }
};

// In the order of a Hugging Face state dict. The head is always listed: a file of a tied model may
// lack it, a .dat stores it as its own tensor.
std::vector<ParamSpec> parameter_table(const Config& config);

inline constexpr std::string_view kEmbedName = "model.embed_tokens.weight";
inline constexpr std::string_view kHeadName = "lm_head.weight";

}  // namespace nibble
