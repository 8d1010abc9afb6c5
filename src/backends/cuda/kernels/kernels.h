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
void argmax(const Context& c, Tensor out, Tensor logits);

// norm.cu
void rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, double eps);
void add_rms_norm(const Context& c, Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b,
                  Tensor w, double eps);

// heads.cu
void rope_table(const Context& c, Tensor table, Tensor positions, double theta);
void rope(const Context& c, Tensor out, Tensor x, Tensor table, Rotation rotation);
void norm_rope(const Context& c, Tensor out, Tensor rstd, Tensor x, Tensor w, Tensor table,
               double eps);
void kv_append(const Context& c, KvView kv, Tensor k, Tensor v, Tensor slots);
void split_heads(const Context& c, const HeadSlots& out, KvView kv, Tensor qkv,
                 const HeadNorms& norms, Tensor table, Tensor slots, double eps);

// attention.cu
void attention(const Context& c, Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences);

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

}  // namespace nibble::cuda
