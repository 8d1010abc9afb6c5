// SPDX-License-Identifier: MIT
// Arguments of the tensor-core kernels of attention backward.
#pragma once
#include <cmath>

#include "backends/cuda/kernels/attention/attention_common.cuh"
#include "backends/cuda/kernels/attention/attention_paths.h"

namespace nibble::cuda {

template <class T>
struct FlashBackArgs {
  Heads<T> dq, dk, dv;
  Heads<const T> dout, q, k, v;
  const float* lse;
  int64_t lse_stride;
  const float* delta;  // [N, Hq]
  Sequences sequences;
  int q_heads, group;
  float scale;
};

template <class T>
FlashBackArgs<T> flash_back_args(const AttentionBackCall& call, const float* delta) {
  return {heads<T>(call.dq),
          heads<T>(call.dk),
          heads<T>(call.dv),
          heads<const T>(call.dout),
          heads<const T>(call.q),
          heads<const T>(call.kv.k),
          heads<const T>(call.kv.v),
          ptr<const float>(call.lse),
          call.lse.row_stride,
          delta,
          sequences_of(call.sequences),
          int(call.q_heads()),
          int(call.group()),
          1.0f / std::sqrt(float(call.width()))};
}

}  // namespace nibble::cuda
