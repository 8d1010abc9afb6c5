// SPDX-License-Identifier: MIT
#include "model/params.h"

#include <fmt/format.h>

namespace nibble {

std::vector<ParamSpec> parameter_table(const Config& c) {
  std::vector<ParamSpec> t;
  t.push_back({std::string(kEmbedName), ParamSlot::embed, -1, {c.V, c.C}});
  for (int64_t l = 0; l < c.L; ++l) {
    const auto add = [&](const char* part, ParamSlot slot, std::vector<int64_t> shape,
                         int64_t row_offset = 0) {
      t.push_back({fmt::format("model.layers.{}.{}.weight", l, part), slot, l, std::move(shape),
                   row_offset});
    };
    const int64_t q = c.Hq * c.D, kv = c.Hkv * c.D;
    add("self_attn.q_proj", ParamSlot::qkv, {q, c.C});
    add("self_attn.k_proj", ParamSlot::qkv, {kv, c.C}, q);
    add("self_attn.v_proj", ParamSlot::qkv, {kv, c.C}, q + kv);
    add("self_attn.o_proj", ParamSlot::attn_out, {c.C, q});
    add("self_attn.q_norm", ParamSlot::q_norm, {c.D});
    add("self_attn.k_norm", ParamSlot::k_norm, {c.D});
    add("mlp.gate_proj", ParamSlot::gate_up, {c.F, c.C});
    add("mlp.up_proj", ParamSlot::gate_up, {c.F, c.C}, c.F);
    add("mlp.down_proj", ParamSlot::down, {c.C, c.F});
    add("input_layernorm", ParamSlot::attn_norm, {c.C});
    add("post_attention_layernorm", ParamSlot::ffn_norm, {c.C});
  }
  t.push_back({"model.norm.weight", ParamSlot::final_norm, -1, {c.C}});
  t.push_back({std::string(kHeadName), ParamSlot::head, -1, {c.V, c.C}});
  return t;
}

}  // namespace nibble
