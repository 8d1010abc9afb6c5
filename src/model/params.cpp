// SPDX-License-Identifier: MIT
#include "model/params.h"

#include <fmt/format.h>

namespace nibble {

std::vector<BlockParam> block_params(const Config& c) {
  const int64_t q = c.Hq * c.D, kv = c.Hkv * c.D;
  return {
      {"self_attn.q_proj", ParamSlot::qkv, {q, c.C}},
      {"self_attn.k_proj", ParamSlot::qkv, {kv, c.C}, q},
      {"self_attn.v_proj", ParamSlot::qkv, {kv, c.C}, q + kv},
      {"self_attn.o_proj", ParamSlot::attn_out, {c.C, q}},
      {"self_attn.q_norm", ParamSlot::q_norm, {c.D}},
      {"self_attn.k_norm", ParamSlot::k_norm, {c.D}},
      {"mlp.gate_proj", ParamSlot::gate_up, {c.F, c.C}},
      {"mlp.up_proj", ParamSlot::gate_up, {c.F, c.C}, c.F},
      {"mlp.down_proj", ParamSlot::down, {c.C, c.F}},
      {"input_layernorm", ParamSlot::attn_norm, {c.C}},
      {"post_attention_layernorm", ParamSlot::ffn_norm, {c.C}},
  };
}

std::vector<int64_t> slot_shape(const Config& c, ParamSlot slot) {
  std::vector<int64_t> shape;
  for (const BlockParam& p : block_params(c)) {
    if (p.slot != slot) continue;
    if (shape.empty()) {
      shape = p.shape;
    } else {
      shape[0] += p.shape[0];
    }
  }
  return shape;
}

std::vector<std::string_view> linear_layer_names() {
  std::vector<std::string_view> names;
  for (const BlockParam& p : block_params(Config{})) {
    if (p.shape.size() == 2) names.push_back(p.name.substr(p.name.rfind('.') + 1));
  }
  return names;
}

std::vector<ParamSpec> parameter_table(const Config& c) {
  const std::vector<BlockParam> block = block_params(c);
  std::vector<ParamSpec> t;
  t.push_back({std::string(kEmbedName), ParamSlot::embed, -1, {c.V, c.C}});
  for (int64_t l = 0; l < c.L; ++l) {
    for (const BlockParam& p : block) {
      t.push_back(
          {fmt::format("model.layers.{}.{}.weight", l, p.name), p.slot, l, p.shape, p.row_offset});
    }
  }
  t.push_back({"model.norm.weight", ParamSlot::final_norm, -1, {c.C}});
  t.push_back({std::string(kHeadName), ParamSlot::head, -1, {c.V, c.C}});
  return t;
}

}  // namespace nibble
