// SPDX-License-Identifier: MIT
// The bodies of the op set on the GPU; contracts are those of backend/backend.h. All enqueue on the
// context's stream and return.
#pragma once
#include "backend/backend.h"
#include "backends/cuda/context.h"

namespace nibble::cuda {

// elementwise.cu
void embed(const Context& c, Tensor out, Tensor table, Tensor ids);
void swiglu(const Context& c, Tensor out, Tensor gate, Tensor up);
void add(const Context& c, Tensor out, Tensor a, Tensor b);
void gather_rows(const Context& c, Tensor out, Tensor x, Tensor rows);

// norm.cu
void rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, double eps);
void add_rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b,
                  Tensor w, double eps);

// Heads of at most this width are worked on by one warp, by these kernels and by rms_norm, so that
// fused and plain ops agree to the bit.
constexpr int64_t kHeadWidth = 256;

// heads.cu: heads of at most kHeadWidth
void rope_table(const Context& c, Tensor table, Tensor positions,
                const RopeFrequencies& frequencies);
void norm_rope(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
               double eps);
void kv_append(const Context& c, KvView kv, Tensor k, Tensor v, Tensor slots);
void split_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                 const HeadParams& params, Tensor table, Tensor slots, double eps);

// rotate_heads.cu
void rope(const Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation);
void add_bias(const Context& c, Tensor out, Tensor x, Tensor bias);
void bias_rope(const Context& c, Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still);
// split_heads of heads that are not normalised. False: not aligned, and nothing was done.
bool split_rotated_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                         const HeadParams& params, Tensor table, Tensor slots);

// attention.cu
void attention(const Context& c, Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences);
// attention_decode_many.cu: split_heads and attention as one kernel, where they are one new token
// each of many sequences. q and k are not written then. False: nothing was done.
bool split_heads_attention(const Context& c, Tensor out, Tensor lse, const HeadSlots& heads,
                           KvView kv, Tensor qkv, const HeadParams& params, Tensor table,
                           Tensor slots, Tensor sequences, double eps);
// attention_back.cu
void attention_back(const Context& c, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                    Tensor lse, Tensor q, KvView kv, Tensor sequences);

// sample.cu
void sample(const Context& c, Tensor out, Tensor logits, Tensor rows, Tensor context,
            Choice choice);

// packed_layout.cu
size_t packed_bytes(int64_t out, int64_t in);
void pack_rows(const Context& c, const LinearWeight& w, int64_t row_begin, int64_t rows,
               const uint8_t* codes, const uint8_t* scales);
void unpack_rows(const Context& c, const LinearWeight& w, int64_t row_begin, int64_t rows,
                 uint8_t* codes, uint8_t* scales);
void quantize_rows(const Context& c, const LinearWeight& w, int64_t row_begin, Tensor src,
                   ScaleRule rule);

// linear.cu
void linear(const Context& c, Tensor out, Tensor x, const LinearWeight& w, Activations activations);
void linear_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                   Activations activations);

// linear_back.cu
void linear_dgrad(const Context& c, Tensor dx, Tensor dy, const LinearWeight& w,
                  Accumulate accumulate);
void linear_wgrad(const Context& c, Tensor dw, Tensor dy, Tensor x, const GradWrite& write);
bool linear_wgrad_squares(const Context& c, Tensor dw, Tensor parts, Tensor dy, Tensor x,
                          const GradWrite& write);

// loss.cu
void softmax_stats(const Context& c, Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                   Accumulate accumulate);
void cross_entropy(const Context& c, Tensor loss, Tensor stats, Tensor targets);
void cross_entropy_back(const Context& c, Tensor dlogits, Tensor logits, Tensor stats,
                        Tensor targets, int64_t v_begin, double scale);
void divergence(const Context& c, Tensor loss, Tensor dlogits, Tensor logits, Tensor stats,
                Tensor teacher, Tensor teacher_stats, double scale, Accumulate accumulate);
void l1_loss(const Context& c, Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
             double scale);

// elementwise_back.cu
void swiglu_back(const Context& c, Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up);
void embed_back(const Context& c, Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                const GradWrite& write);
void scatter_rows(const Context& c, Tensor out, Tensor x, Tensor rows);

// norm_back.cu
void rms_norm_back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd,
                   Tensor w, Tensor base, Accumulate accumulate);
// Heads of at most kHeadWidth.
void norm_rope_back(const Context& c, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd,
                    Tensor w, Tensor table, Accumulate accumulate);

// bias_back.cu
void bias_back(const Context& c, Tensor db, Tensor dy, Accumulate accumulate);

// sum_squares.cu
void sums_of_squares(const Context& c, Tensor out, std::span<const Tensor> x);

// adamw.cu
void adamw_steps(const Context& c, std::span<const AdamwUpdate> updates);

}  // namespace nibble::cuda
