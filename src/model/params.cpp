// SPDX-License-Identifier: MIT
#include "model/params.h"

#include <fmt/format.h>

namespace nibble {

std::vector<BlockParam> block_params(const Config& c) {
  const int64_t q = c.Hq * c.D, kv = c.Hkv * c.D;
  std::vector<BlockParam> params;
  const auto add = [&](std::string_view name, ParamSlot slot, std::vector<int64_t> shape,
                       int64_t row_offset = 0) {
    params.push_back({name, slot, std::move(shape), row_offset});
  };
  // A linear layer of the three that may have biases.
  const auto add_biased = [&](std::string_view weight, std::string_view bias, int64_t out,
                              int64_t row_offset) {
    add(weight, ParamSlot::qkv, {out, c.C}, row_offset);
    if (c.qkv_bias) add(bias, ParamSlot::qkv_bias, {out}, row_offset);
  };
  add_biased("self_attn.q_proj.weight", "self_attn.q_proj.bias", q, 0);
  add_biased("self_attn.k_proj.weight", "self_attn.k_proj.bias", kv, q);
  add_biased("self_attn.v_proj.weight", "self_attn.v_proj.bias", kv, q + kv);
  add("self_attn.o_proj.weight", ParamSlot::attn_out, {c.C, q});
  if (c.qk_norm) {
    add("self_attn.q_norm.weight", ParamSlot::q_norm, {c.D});
    add("self_attn.k_norm.weight", ParamSlot::k_norm, {c.D});
  }
  add("mlp.gate_proj.weight", ParamSlot::gate_up, {c.F, c.C});
  add("mlp.up_proj.weight", ParamSlot::gate_up, {c.F, c.C}, c.F);
  add("mlp.down_proj.weight", ParamSlot::down, {c.C, c.F});
  add("input_layernorm.weight", ParamSlot::attn_norm, {c.C});
  add("post_attention_layernorm.weight", ParamSlot::ffn_norm, {c.C});
  return params;
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
    if (p.shape.size() != 2) continue;
    const std::string_view layer = p.name.substr(0, p.name.rfind('.'));
    names.push_back(layer.substr(layer.rfind('.') + 1));
  }
  return names;
}

std::vector<ParamSpec> parameter_table(const Config& c) {
  const std::vector<BlockParam> block = block_params(c);
  std::vector<ParamSpec> t;
  t.push_back({std::string(kEmbedName), ParamSlot::embed, -1, {c.V, c.C}});
  for (int64_t l = 0; l < c.L; ++l) {
    for (const BlockParam& p : block) {
      t.push_back({fmt::format("model.layers.{}.{}", l, p.name), p.slot, l, p.shape, p.row_offset});
    }
  }
  t.push_back({"model.norm.weight", ParamSlot::final_norm, -1, {c.C}});
  t.push_back({std::string(kHeadName), ParamSlot::head, -1, {c.V, c.C}});
  return t;
}

}  // namespace nibble
