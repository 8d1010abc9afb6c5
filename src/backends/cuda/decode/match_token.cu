// SPDX-License-Identifier: MIT
// Recognises one token of one sequence in a list of ops, as model/qwen3.cpp writes it down.
#include <limits>

#include "backends/cuda/decode/held_ops.h"
#include "backends/cuda/decode/token_args.h"
#include "backends/cuda/device/packed_layout.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"
#include "backends/cuda/kernels/attention/attention_shares.cuh"

namespace nibble::cuda {
namespace {

bool is_bf16_row(const Tensor& t) {
  return t.dtype == DType::bf16 && t.dim(0) == 1 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

class Match {
 public:
  explicit Match(std::span<const held::Op> ops) : ops_(ops) {}

  TokenArgs args = {};
  bool f8_cache = false;

  bool whole_token() {
    const auto* first = next<held::Norm>();
    if (!first || !norm(*first) || !is_bf16_row(first->x)) return false;
    args.width = int(first->x.cols());
    args.eps = float(first->eps);
    args.x = ptr<const bf16>(first->x);
    // Packs of eight as in norm.cu, which sums narrow rows another way.
    if (args.width <= kHeadWidth || args.width > kTokenMaxWidth) return false;
    residual_ = first->x.data, normed_ = first->out.data;
    args.layer[0].attn_norm = AnyFloats(first->w);
    do {
      if (args.layers == kTokenLayers || !layer(args.layer[args.layers])) return false;
      ++args.layers;
    } while (!behind_last_);
    return head(args.layer[args.layers]);
  }

 private:
  template <class T>
  const T* next() {
    const T* op = at_ < ops_.size() ? std::get_if<T>(&ops_[at_]) : nullptr;
    if (op) ++at_;
    return op;
  }

  bool norm(const held::Norm& n) const { return !n.rstd && in_packs<8>(n.w); }
  bool add_norm(const held::AddNorm& n) const {
    return !n.rstd && in_packs<8>(n.w) && n.a.data == residual_ && float(n.eps) == args.eps;
  }
  bool weight(const LinearWeight& w, Activations activations, int64_t in, int64_t out,
              TokenWeight& to) const {
    if (!w.is_packed() || activations != Activations::none || w.in != in || w.out != out ||
        in % kUnitCols != 0 || out % (2 * kUnitRows) != 0 ||
        out > std::numeric_limits<int>::max() / 2) {
      return false;
    }
    to = {w.packed.as<uint8_t>(), w.row_scale ? w.row_scale.as<float>() : nullptr};
    return true;
  }
  bool product(const held::Linear& l, const std::byte* x, int64_t in, int64_t out,
               TokenWeight& to) const {
    return l.x.data == x && is_bf16_row(l.x) && l.out.dim(0) == 1 &&
           weight(l.w, l.activations, in, out, to);
  }

  bool layer(TokenLayer& to) {
    const auto* qkv = next<held::Linear>();
    const auto* heads = next<held::SplitHeads>();
    const auto* attention = next<held::Attention>();
    const auto* attn_out = next<held::Linear>();
    const auto* middle = next<held::AddNorm>();
    const auto* gate_up = next<held::LinearSwiglu>();
    const auto* down = next<held::Linear>();
    if (!qkv || !heads || !attention || !attn_out || !middle || !gate_up || !down) return false;
    if (!between(*qkv, *heads, *attention)) return false;
    const int64_t rows = int64_t(args.q_heads + 2 * args.kv_heads) * 128, width = args.width;
    const int64_t ffn = gate_up->act.cols();
    if (!product(*qkv, normed_, width, rows, to.weight[kQkv]) ||
        !product(*attn_out, attention->out.data, int64_t(args.q_heads) * 128, width,
                 to.weight[kAttnOut]) ||
        !add_norm(*middle) || middle->b.data != attn_out->out.data ||
        gate_up->x.data != middle->out.data || !is_bf16_row(gate_up->act) ||
        !weight(gate_up->w, gate_up->activations, width, 2 * ffn, to.weight[kGateUp]) ||
        !product(*down, gate_up->act.data, ffn, width, to.weight[kFfnDown])) {
      return false;
    }
    to.ffn_norm = AnyFloats(middle->w);
    to.q_norm = AnyFloats(heads->norms.q), to.k_norm = AnyFloats(heads->norms.k);
    to.cache_k = heads->kv.k.data, to.cache_v = heads->kv.v.data;
    // Every layer is as the first.
    if (args.layers == 0) {
      args.ffn = int(ffn);
      if (!is_bf16_row(qkv->out) || !is_bf16_row(attention->out) || !is_bf16_row(down->out)) {
        return false;
      }
    }
    residual_ = middle->sum.data;
    return ffn == args.ffn && end_of_layer(*down);
  }

  bool end_of_layer(const held::Linear& down) {
    if (const auto* n = next<held::AddNorm>()) {
      args.layer[args.layers + 1].attn_norm = AnyFloats(n->w);
      const bool fits = add_norm(*n) && n->b.data == down.out.data;
      residual_ = n->sum.data, normed_ = n->out.data;
      return fits;
    }
    const auto* sum = next<held::Add>();
    behind_last_ = true;
    if (!sum || sum->a.data != residual_ || sum->b.data != down.out.data) return false;
    residual_ = sum->out.data;
    return true;
  }

  // Heads of 128, one sequence, a cache that is the same for every layer.
  bool between(const held::Linear& qkv, const held::SplitHeads& s, const held::Attention& a) {
    const AttentionCall call{{a.q, a.kv, a.sequences}, a.out, a.lse};
    if (a.lse || s.out.q_rstd || s.out.k_rstd || s.qkv.data != qkv.out.data ||
        a.q.data != s.out.q.data || a.kv.k.data != s.kv.k.data || a.kv.v.data != s.kv.v.data ||
        a.q.dtype != DType::bf16 || !tensor_core_types(call) || call.width() != 128 ||
        call.group() > shares::kGroup || a.sequences.dim(0) != 1 || call.tokens() != 1 ||
        a.kv.k.data == s.out.k.data || float(s.eps) != args.eps ||
        !heads_aligned(a.out, a.q, a.kv.k, a.kv.v) || !in_packs<8>(s.norms.q, s.norms.k, s.table)) {
      return false;
    }
    const bool f8 = a.kv.k.dtype == DType::f8_e4m3;
    if (args.layers == 0) {
      args.q_heads = int(call.q_heads()), args.kv_heads = int(call.kv_heads());
      args.k_stride = a.kv.k.row_stride, args.v_stride = a.kv.v.row_stride;
      args.rope = AnyFloats(s.table);
      args.slot = ptr<const int32_t>(s.slots);
      args.sequence = sequences_of(a.sequences).p;
      f8_cache = f8;
    }
    return call.q_heads() == args.q_heads && call.kv_heads() == args.kv_heads &&
           a.kv.k.row_stride == args.k_stride && a.kv.v.row_stride == args.v_stride &&
           f8 == f8_cache && s.table.data == args.rope.data &&
           ptr<const int32_t>(s.slots) == args.slot && sequences_of(a.sequences).p == args.sequence;
  }

  // The final norm and the head; nothing may follow.
  bool head(TokenLayer& to) {
    const auto* row = next<held::Gather>();
    const auto* last = next<held::Norm>();
    const auto* logits = next<held::Linear>();
    if (!row || !last || !logits || at_ != ops_.size()) return false;
    to.attn_norm = AnyFloats(last->w);
    args.logits = AnyFloats(logits->out);
    args.vocab = int(logits->w.out);
    return row->x.data == residual_ && row->x.dim(0) == 1 && row->out.dim(0) == 1 &&
           last->x.data == row->out.data && norm(*last) && float(last->eps) == args.eps &&
           product(*logits, last->out.data, args.width, logits->w.out, to.weight[kQkv]);
  }

  std::span<const held::Op> ops_;
  size_t at_ = 0;
  const std::byte *residual_ = nullptr, *normed_ = nullptr;
  bool behind_last_ = false;
};

}  // namespace

bool launch_as_token(const Context& c, std::span<const held::Op> ops) {
  Match match(ops);
  return match.whole_token() && launch_token(c, match.args, match.f8_cache);
}

}  // namespace nibble::cuda
