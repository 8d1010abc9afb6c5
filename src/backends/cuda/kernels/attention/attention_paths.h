// SPDX-License-Identifier: MIT
// The kernels behind attention() and attention_back(), in the order of preference of the dispatch.
// The fast ones return false where they do not apply.
#pragma once
#include "backends/cuda/kernels/kernels.h"

namespace nibble::cuda {

// Inputs and sizes common to forward and backward.
struct AttentionInputs {
  Tensor q;
  KvView kv;
  Tensor sequences;
  int64_t tokens() const { return q.dim(0); }
  int64_t q_heads() const { return q.dim(1); }
  int64_t kv_heads() const { return kv.k.dim(1); }
  int64_t group() const { return q_heads() / kv_heads(); }
  int64_t width() const { return q.dim(2); }
};
struct AttentionCall : AttentionInputs {
  Tensor out, lse;
};
struct AttentionBackCall : AttentionInputs {
  Tensor dq, dk, dv, dout, out, lse;
};

// attention_decode.cu: few queries a sequence, split-KV.
bool attention_decode(const Context& c, const AttentionCall& a);
// attention_decode_many.cu: the same for so many sequences that keys need no split.
bool attention_decode_many(const Context& c, const AttentionCall& a);
// attention_flash.cu: many queries a sequence, mma.sync.
bool attention_flash(const Context& c, const AttentionCall& a);
// attention_wgmma.cu: the same on compute capability 9.0, bf16.
bool attention_wgmma(const Context& c, const AttentionCall& a);
// attention_back_flash.cu; delta f32 [N, Hq] is dout . out.
bool attention_back_flash(const Context& c, const AttentionBackCall& a, const float* delta);
// attention_back_wgmma.cu: the same on compute capability 9.0, bf16.
bool attention_back_wgmma(const Context& c, const AttentionBackCall& a, const float* delta);

}  // namespace nibble::cuda
