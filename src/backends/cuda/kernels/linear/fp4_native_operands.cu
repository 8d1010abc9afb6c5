// SPDX-License-Identifier: MIT
// Operands of native FP4 GEMMs (cuBLASLt, compute capability 10.0 and later): canonical E2M1 codes
// and E4M3 scales in the hardware's swizzled order, from packed weights or from activations
// (quantised by rule absmax). One thread per block of 16.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/linear/fp4_native.h"
#include "backends/cuda/launch.h"
#include "quant/nvfp4_block.h"
#include "quant/swizzle.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void weight_operand_kernel(Fp4Operand to, const uint8_t* packed, int64_t in) {
  pdl_enter();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= to.rows * blocks) return;
  uint8_t scale;
  const uint64_t codes = read_block(packed, block_place(in, i / blocks, i % blocks), &scale);
  reinterpret_cast<uint64_t*>(to.codes)[i] = codes;
  to.scales[swizzled_scale_index(i / blocks, i % blocks, blocks)] = scale;
}

template <class T>
__global__ void activation_operand_kernel(Fp4Operand to, const T* x, int64_t stride, int64_t in) {
  pdl_enter();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= to.rows * blocks) return;
  float v[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) v[k] = to_f32(x[i / blocks * stride + i % blocks * 16 + k]);
  uint8_t codes[8];
  const uint8_t scale = nvfp4_block::quantize<ScaleRule::absmax>(v, 1.0f, codes);
  uint64_t word = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) word |= uint64_t(codes[k]) << (8 * k);
  reinterpret_cast<uint64_t*>(to.codes)[i] = word;
  to.scales[swizzled_scale_index(i / blocks, i % blocks, blocks)] = scale;
}

// Zero scales for padding rows and columns.
void clear_scales(const Context& c, const Fp4Operand& to, int64_t in) {
  NIBBLE_CUDA(cudaMemsetAsync(to.scales, 0, swizzled_scale_bytes(to.rows, in / 16), c.stream));
}

}  // namespace

void make_weight_operand(const Context& c, const Fp4Operand& to, const LinearWeight& w,
                         int64_t row_begin) {
  clear_scales(c, to, w.in);
  launch(c, {dim3(blocks_for(to.rows * (w.in / 16), kThreads)), dim3(kThreads)},
         weight_operand_kernel, to, w.packed.as<uint8_t>() + packed_size(row_begin, w.in), w.in);
}

void make_activation_operand(const Context& c, const Fp4Operand& to, Tensor x) {
  const int64_t in = x.dim(1);
  clear_scales(c, to, in);
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(blocks_for(to.rows * (in / 16), kThreads)), dim3(kThreads)},
           activation_operand_kernel<T>, to, ptr<const T>(x), x.row_stride, in);
  });
}

}  // namespace nibble::cuda
