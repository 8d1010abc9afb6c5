// SPDX-License-Identifier: MIT
#include "model/weights.h"

namespace nibble {
namespace {

LinearWeight make_linear(Arena& arena, const Backend& be, int64_t out, int64_t in,
                         const LinearLayout& how) {
  LinearWeight w;
  w.out = out;
  w.in = in;
  if (!how.kept) return w;
  if (how.dense) {
    w.dense = arena.take(*how.dense, {out, in});
  } else {
    w.packed = arena.take(DType::u8, {int64_t(be.packed_bytes(out, in))});
  }
  if (how.row_scale) w.row_scale = arena.take(DType::f32, {out});
  return w;
}

}  // namespace

Weights make_weights(Arena& arena, Arena& norms, const Backend& be, const Config& c,
                     const WeightLayout& layout) {
  const auto norm_of = [&](ParamSlot slot) {
    const std::vector<int64_t> shape = slot_shape(c, slot);
    return shape.empty() ? Tensor{} : norms.take(layout.norm, {shape[0]});
  };
  const auto linear_of = [&](ParamSlot slot, const LinearLayout& how) {
    const std::vector<int64_t> shape = slot_shape(c, slot);
    return shape.empty() ? LinearWeight{} : make_linear(arena, be, shape[0], shape[1], how);
  };
  Weights w;
  w.embed = arena.take(layout.embed, {c.V, c.C});
  w.block.resize(size_t(c.L));
  for (size_t l = 0; l < w.block.size(); ++l) {
    BlockWeights& b = w.block[l];
    const LinearLayout* how = &layout.linear[l * kBlockLinears];
    for (const auto& m : b.vectors()) b.*m.at = norm_of(m.slot);
    for (const auto& m : b.linears()) b.*m.at = linear_of(m.slot, *how++);
  }
  w.final_norm = norms.take(layout.norm, {c.C});
  if (layout.head_is_embed) {
    w.head.out = c.V;
    w.head.in = c.C;
    w.head.dense = w.embed;
  } else {
    w.head = make_linear(arena, be, c.V, c.C, layout.head);
  }
  return w;
}

}  // namespace nibble
