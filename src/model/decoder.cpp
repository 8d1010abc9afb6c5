// SPDX-License-Identifier: MIT
#include "model/decoder.h"

#include <algorithm>

#include "model/linear.h"

namespace nibble {
namespace {

// How heads are turned: the same in all blocks.
struct Turning {
  Tensor table;  // [N, D]
  StillPairs still;
};

// The heads inside the stacked projection [N, (Hq + 2 Hkv) D], as [N, H, D].
Tensor heads(Tensor qkv, int64_t begin, int64_t count, const Config& c) {
  return qkv.columns(begin * c.D, count * c.D).split_inner({qkv.dim(0), count, c.D});
}
Tensor query_heads(Tensor qkv, const Config& c) { return heads(qkv, 0, c.Hq, c); }
Tensor key_heads(Tensor qkv, const Config& c) { return heads(qkv, c.Hq, c.Hkv, c); }
Tensor value_heads(Tensor qkv, const Config& c) { return heads(qkv, c.Hq + c.Hkv, c.Hkv, c); }

HeadParams head_params(const BlockWeights& w, StillPairs still) {
  return {w.q_norm, w.k_norm, w.qkv_bias, still};
}

// One block from its normalised input a.n1 to the feed-forward activation a.act. The norm before,
// the down projection and the addition after it stay outside: they fuse with their neighbours, and
// a recompute needs none of them. `tmp` [N, C] is scratch.
void block_forward(Backend& be, const Config& c, const BlockWeights& w, const Batch& b, Tensor x,
                   BlockActs& a, const Turning& rope, KvView kv, Tensor tmp, int64_t layer,
                   Activations act) {
  const int64_t n = b.n();
  be.note("attn_norm", layer, a.n1);
  linear_forward(be, a.qkv, a.n1, w.qkv, act);
  be.note("qkv", layer, a.qkv);
  be.split_heads_attention(a.att, a.lse, {a.q, a.q_rstd, a.k, a.k_rstd}, kv, a.qkv,
                           head_params(w, rope.still), rope.table, b.slots, b.sequences, c.rms_eps);
  be.note("q", layer, a.q);
  be.note("k", layer, a.k);
  be.note("attn", layer, a.att);
  linear_forward(be, tmp, a.att.view({n, c.Hq * c.D}), w.attn_out, act);
  be.note("attn_out", layer, tmp);
  be.add_rms_norm(a.n2, a.rstd2, a.mid, x, tmp, w.ffn_norm, c.rms_eps);
  be.note("ffn_norm", layer, a.n2);
  be.linear_swiglu(a.act, a.gate_up, a.n2, w.gate_up, activations_for(w.gate_up, act));
  be.note("ffn_act", layer, a.act);
}

// What the forward did not keep of a block, again, with the same bits.
void block_recompute(Backend& be, const Config& c, const BlockWeights& w, const Batch& b, Tensor x,
                     BlockActs& a, const Turning& rope, KvView kv, Tensor tmp, int64_t layer,
                     Keep keep) {
  if (keep == Keep::inputs) {
    be.rms_norm(a.n1, a.rstd1, x, w.attn_norm, c.rms_eps);
    block_forward(be, c, w, b, x, a, rope, kv, tmp, layer, Activations::none);
  } else if (keep == Keep::attention) {
    be.rms_norm(a.n2, a.rstd2, a.mid, w.ffn_norm, c.rms_eps);
    be.linear_swiglu(a.act, a.gate_up, a.n2, w.gate_up, Activations::none);
  }
}

// The mirror of block_forward and what surrounds it: d.dx enters as the gradient of the block's
// output and leaves as that of its input x. Slots are overwritten once their last reader is done.
void block_backward(Backend& be, const Config& c, const BlockWeights& w, const Batch& b, Tensor x,
                    BlockActs& a, Tensor rope, KvView kv, const BackActs& d, const BlockGrads& g,
                    const GradStream& s, int64_t layer) {
  const int64_t n = b.n(), att_cols = c.Hq * c.D;
  // Feed-forward: out = mid + act . down^T.
  linear_wgrad(be, g.down, d.dx, a.act, s, ParamSlot::down, layer);
  be.linear_dgrad(a.act, d.dx, w.down, Accumulate::no);
  const Tensor gate = a.gate_up.columns(0, c.F), up = a.gate_up.columns(c.F, c.F);
  be.swiglu_back(gate, up, a.act, gate, up);
  linear_wgrad(be, g.gate_up, a.gate_up, a.n2, s, ParamSlot::gate_up, layer);
  be.linear_dgrad(a.n2, a.gate_up, w.gate_up, Accumulate::no);
  be.rms_norm_back(d.dx, g.ffn_norm, a.n2, a.mid, a.rstd2, w.ffn_norm, d.dx, s.accumulate);
  // Attention: mid = x + att . attn_out^T.
  linear_wgrad(be, g.attn_out, d.dx, a.att.view({n, att_cols}), s, ParamSlot::attn_out, layer);
  be.linear_dgrad(d.datt.view({n, att_cols}), d.dx, w.attn_out, Accumulate::no);
  const Tensor dq = query_heads(d.dqkv, c), dk = key_heads(d.dqkv, c);
  be.attention_back(dq, dk, value_heads(d.dqkv, c), d.datt, a.att, a.lse, a.q, kv, b.sequences);
  if (w.q_norm) {
    be.norm_rope_back(dq, g.q_norm, dq, query_heads(a.qkv, c), a.q_rstd, w.q_norm, rope,
                      s.accumulate);
    be.norm_rope_back(dk, g.k_norm, dk, key_heads(a.qkv, c), a.k_rstd, w.k_norm, rope,
                      s.accumulate);
  } else {
    be.rope(dq, dq, rope, Rotation::backward);
    be.rope(dk, dk, rope, Rotation::backward);
  }
  if (g.qkv_bias) be.bias_back(g.qkv_bias, d.dqkv, s.accumulate);
  linear_wgrad(be, g.qkv, d.dqkv, a.n1, s, ParamSlot::qkv, layer);
  be.linear_dgrad(a.n1, d.dqkv, w.qkv, Accumulate::no);
  be.rms_norm_back(d.dx, g.attn_norm, a.n1, x, a.rstd1, w.attn_norm, d.dx, s.accumulate);
}

void call(const std::function<void(int64_t)>& hook, int64_t layer) {
  if (hook) hook(layer);
}

}  // namespace

void forward_hidden(Backend& be, const Config& c, const Weights& w, const Batch& b, Acts& a,
                    std::span<const KvView> kv, Activations act, const PassHooks& hooks) {
  be.embed(a.x[0], w.embed, b.ids);
  be.note("embed", -1, a.x[0]);
  be.rope_table(a.rope, b.positions, a.frequencies);
  const Turning rope{a.rope, a.still};
  be.rms_norm(a.of(0).n1, a.of(0).rstd1, a.x[0], w.block[0].attn_norm, c.rms_eps);
  for (int64_t l = 0; l < c.L; ++l) {
    BlockActs& slot = a.of(l);
    const Tensor x = a.x[size_t(l)], x_next = a.x[size_t(l + 1)];
    const BlockWeights& block = w.block[size_t(l)];
    call(hooks.weights_needed, l);
    block_forward(be, c, block, b, x, slot, rope, kv[size_t(l)], a.tmp, l, act);
    linear_forward(be, a.tmp, slot.act, block.down, act);
    be.note("ffn_out", l, a.tmp);
    if (l + 1 < c.L) {
      BlockActs& next = a.of(l + 1);
      be.add_rms_norm(next.n1, next.rstd1, x_next, slot.mid, a.tmp,
                      w.block[size_t(l + 1)].attn_norm, c.rms_eps);
    } else {
      be.add(x_next, slot.mid, a.tmp);
    }
    be.note("out", l, x_next);
  }
  if (b.outputs() == 0) return;  // a chunk of a prompt whose logits nobody reads
  be.gather_rows(a.x_out, a.x.back(), b.out_rows);
  be.rms_norm(a.n_out, a.rstd_out, a.x_out, w.final_norm, c.rms_eps);
  be.note("final_norm", -1, a.n_out);
}

void forward(Backend& be, const Config& c, const Weights& w, const Batch& b, Acts& a,
             std::span<const KvView> kv, Activations act, const PassHooks& hooks) {
  forward_hidden(be, c, w, b, a, kv, act, hooks);
  if (b.outputs() == 0) return;
  linear_forward(be, a.logits, a.n_out, w.head, act);
  be.note("logits", -1, a.logits);
}

DecodePlan decode_plan(const Config& c, const Weights& w, const Batch& b, const Acts& a,
                       std::span<const KvView> kv, Activations act) {
  DecodePlan plan;
  plan.ids = b.ids, plan.positions = b.positions, plan.slots = b.slots;
  plan.sequences = b.sequences;
  plan.embed = w.embed;
  plan.frequencies = a.frequencies;
  for (int64_t l = 0; l < c.L; ++l) {
    const BlockWeights& block = w.block[size_t(l)];
    plan.layers.push_back({block.attn_norm, block.qkv, head_params(block, a.still), block.attn_out,
                           block.ffn_norm, block.gate_up, block.down, kv[size_t(l)]});
  }
  plan.final_norm = w.final_norm;
  plan.head = w.head;
  plan.x = a.x[0], plan.rope = a.rope, plan.logits = a.logits;
  plan.q_heads = c.Hq, plan.kv_heads = c.Hkv, plan.head_width = c.D;
  plan.eps = c.rms_eps;
  plan.activations = act;
  return plan;
}

void backward(Backend& be, const Config& c, const Weights& w, const Batch& b, Acts& a,
              const BackActs& d, Tensor d_out, const Grads& g, const GradStream& s,
              const PassHooks& hooks) {
  const int64_t lowest = lowest_wanted(g);
  const std::vector<KvView> kv = kv_of_acts(a, c);
  const Turning rope{a.rope, a.still};
  be.rms_norm_back(a.n_out, g.final_norm, d_out, a.x_out, a.rstd_out, w.final_norm, Tensor{},
                   s.accumulate);
  call(hooks.gradients_ready, c.L);
  if (lowest < c.L) be.scatter_rows(d.dx, a.n_out, b.out_rows);
  for (int64_t l = c.L - 1; l >= std::max<int64_t>(lowest, 0); --l) {
    BlockActs& slot = a.of(l);
    const BlockWeights& block = w.block[size_t(l)];
    const Tensor x = a.x[size_t(l)];
    call(hooks.weights_needed, l);
    // Shared slots still hold the last block's activations after the forward.
    if (l + 1 < c.L) {
      block_recompute(be, c, block, b, x, slot, rope, kv[size_t(l)], a.tmp, l, a.keep);
    }
    block_backward(be, c, block, b, x, slot, a.rope, kv[size_t(l)], d, g.block[size_t(l)], s, l);
    call(hooks.gradients_ready, l);
  }
  if (g.embed && s.embed_rows) {
    be.embed_back(s.embed_rows, d.dx, s.embed_rows_of, b.order, s.of(ParamSlot::embed, -1));
  } else if (g.embed) {
    GradWrite write = s.of(ParamSlot::embed, -1);
    if (s.head_wrote_embed) write.accumulate = Accumulate::yes;
    be.embed_back(g.embed, d.dx, b.ids, b.order, write);
  }
  call(hooks.gradients_ready, -1);
}

std::vector<KvView> kv_of_acts(Acts& a, const Config& c) {
  std::vector<KvView> kv;
  for (int64_t l = 0; l < c.L; ++l) kv.push_back({a.of(l).k, value_heads(a.of(l).qkv, c)});
  return kv;
}

}  // namespace nibble
