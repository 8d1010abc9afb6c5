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
  Weights w;
  w.embed = arena.take(layout.embed, {c.V, c.C});
  for (int64_t l = 0; l < c.L; ++l) {
    const LinearLayout* how = &layout.linear[size_t(l) * 4];
    BlockWeights b;
    b.attn_norm = norms.take(layout.norm, {c.C});
    b.qkv = make_linear(arena, be, c.qkv_rows(), c.C, how[0]);
    b.q_norm = norms.take(layout.norm, {c.D});
    b.k_norm = norms.take(layout.norm, {c.D});
    b.attn_out = make_linear(arena, be, c.C, c.Hq * c.D, how[1]);
    b.ffn_norm = norms.take(layout.norm, {c.C});
    b.gate_up = make_linear(arena, be, 2 * c.F, c.C, how[2]);
    b.down = make_linear(arena, be, c.C, c.F, how[3]);
    w.block.push_back(b);
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

SlotRef slot_of(Weights& w, const ParamSpec& p) { return slot_in(w, p); }

}  // namespace nibble
