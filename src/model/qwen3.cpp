// SPDX-License-Identifier: MIT
#include "model/qwen3.h"

#include "model/linear.h"

namespace nibble {
namespace {

// The values of a layer are used as projected: columns of qkv behind q and k.
Tensor value_heads(const BlockActs& a, const Config& c) {
  return a.qkv.columns((c.Hq + c.Hkv) * c.D, c.Hkv * c.D).split_inner({a.qkv.dim(0), c.Hkv, c.D});
}

// One block from its normalised input a.n1 to the feed-forward output in `out` [N, C], which the
// caller adds to a.mid. The norm before and the addition after stay outside, so that they fuse
// with their neighbours and a recompute can stop early.
void block_forward(Backend& be, const Config& c, const BlockWeights& w, const Batch& b, Tensor x,
                   BlockActs& a, Tensor rope, KvView kv, Tensor out, int64_t layer,
                   Activations act) {
  const int64_t n = b.n();
  const int64_t q_cols = c.Hq * c.D, k_cols = c.Hkv * c.D;
  be.note("attn_norm", layer, a.n1);
  linear_forward(be, a.qkv, a.n1, w.qkv, act);
  be.note("qkv", layer, a.qkv);
  const Tensor q = a.qkv.columns(0, q_cols).split_inner({n, c.Hq, c.D});
  const Tensor k = a.qkv.columns(q_cols, k_cols).split_inner({n, c.Hkv, c.D});
  be.norm_rope(a.q, a.q_rstd, q, w.q_norm, rope, c.rms_eps);
  be.norm_rope(a.k, a.k_rstd, k, w.k_norm, rope, c.rms_eps);
  be.note("q", layer, a.q);
  be.note("k", layer, a.k);
  be.kv_append(kv, a.k, value_heads(a, c), b.slots);
  be.attention(a.att, Tensor{}, a.q, kv, b.sequences);
  be.note("attn", layer, a.att);
  linear_forward(be, out, a.att.view({n, q_cols}), w.attn_out, act);
  be.note("attn_out", layer, out);
  be.add_rms_norm(a.n2, a.rstd2, a.mid, x, out, w.ffn_norm, c.rms_eps);
  be.note("ffn_norm", layer, a.n2);
  linear_forward(be, a.gate_up, a.n2, w.gate_up, act);
  be.swiglu(a.act, a.gate_up.columns(0, c.F), a.gate_up.columns(c.F, c.F));
  be.note("ffn_act", layer, a.act);
  linear_forward(be, out, a.act, w.down, act);
  be.note("ffn_out", layer, out);
}

}  // namespace

void forward(Backend& be, const Config& c, const Weights& w, const Batch& b, Acts& a,
             std::span<const KvView> kv, Activations act) {
  be.embed(a.x[0], w.embed, b.ids);
  be.note("embed", -1, a.x[0]);
  be.rope_table(a.rope, b.positions, c.rope_theta);
  be.rms_norm(a.of(0).n1, a.of(0).rstd1, a.x[0], w.block[0].attn_norm, c.rms_eps);
  for (int64_t l = 0; l < c.L; ++l) {
    BlockActs& slot = a.of(l);
    const Tensor x = a.x[size_t(l)], x_next = a.x[size_t(l + 1)];
    block_forward(be, c, w.block[size_t(l)], b, x, slot, a.rope, kv[size_t(l)], a.tmp, l, act);
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
  be.rms_norm(a.n_out, Tensor{}, a.x_out, w.final_norm, c.rms_eps);
  be.note("final_norm", -1, a.n_out);
  linear_forward(be, a.logits, a.n_out, w.head, act);
  be.note("logits", -1, a.logits);
}

std::vector<KvView> kv_of_acts(Acts& a, const Config& c) {
  std::vector<KvView> kv;
  for (int64_t l = 0; l < c.L; ++l) kv.push_back({a.of(l).k, value_heads(a.of(l), c)});
  return kv;
}

}  // namespace nibble
