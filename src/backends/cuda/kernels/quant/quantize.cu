// SPDX-License-Identifier: MIT
// Quantises floats on the device to NVFP4: weights into the packed layout, and activations through
// NVFP4 and back (W4A4 emulated, without FP4 tensor cores). One thread per block of 16.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/packed_layout.cuh"
#include "backends/cuda/device_functions/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"
#include "quant/nvfp4_block.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ __forceinline__ void load_block(const T* x, float (&v)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) v[i] = to_f32(x[i]);
}

template <ScaleRule kRule>
__device__ __forceinline__ uint64_t quantize_block(const float (&v)[16], float g, uint8_t* scale) {
  uint8_t bytes[8];
  *scale = nvfp4_block::quantize<kRule>(v, g, bytes);
  uint64_t codes = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) codes |= uint64_t(bytes[i]) << (8 * i);
  return codes;
}

// Writes weights: never launches dependents early.
template <ScaleRule kRule, class T>
__global__ void quantize_rows_kernel(uint8_t* packed, int64_t in, int64_t row_begin, int64_t rows,
                                     const T* src, const float* row_scale) {
  pdl_wait();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * blocks) return;
  const int64_t row = row_begin + i / blocks;
  float v[16];
  load_block(src + i * 16, v);
  uint8_t scale;
  const uint64_t codes = quantize_block<kRule>(v, row_scale ? row_scale[row] : 1.0f, &scale);
  write_block(packed, block_place(in, row, i % blocks), codes, scale);
}

// x through NVFP4 by rule absmax; the values are exact in every type of T.
template <class T>
__global__ void round_activations_kernel(T* out, const T* x, int64_t stride, int64_t n,
                                         int64_t in) {
  pdl_enter();
  const int64_t blocks = in / 16, i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n * blocks) return;
  float v[16];
  load_block(x + i / blocks * stride + i % blocks * 16, v);
  uint8_t scale;
  const uint64_t codes = quantize_block<ScaleRule::absmax>(v, 1.0f, &scale);
  const float s = e4m3_value(scale);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    out[i * 16 + k] = from_f32<T>(e2m1_value(uint8_t(codes >> (4 * k) & 15)) * s);
  }
}

template <class F>
void with_rule(ScaleRule rule, F&& f) {
  switch (rule) {
    case ScaleRule::four_over_six:
      return f(std::integral_constant<ScaleRule, ScaleRule::four_over_six>());
    case ScaleRule::absmax: return f(std::integral_constant<ScaleRule, ScaleRule::absmax>());
    case ScaleRule::search: return f(std::integral_constant<ScaleRule, ScaleRule::search>());
    case ScaleRule::torchao: return f(std::integral_constant<ScaleRule, ScaleRule::torchao>());
  }
  throw_internal("scale rule {}", int(rule));
}

}  // namespace

void quantize_rows(const Context& c, const LinearWeight& w, int64_t row_begin, Tensor src,
                   ScaleRule rule) {
  if (rule == ScaleRule::torchao && w.row_scale) {
    throw_internal("scale rule torchao with global scales: it is single-level");
  }
  const int64_t blocks = src.dim(0) * (w.in / 16);
  with_float(src.dtype, [&](auto t) {
    using T = decltype(t);
    with_rule(rule, [&](auto r) {
      launch(c, {dim3(blocks_for(blocks, kThreads)), dim3(kThreads)},
             quantize_rows_kernel<decltype(r)::value, T>, w.packed.as<uint8_t>(), w.in, row_begin,
             src.dim(0), ptr<const T>(src), w.row_scale ? ptr<const float>(w.row_scale) : nullptr);
    });
  });
}

void round_activations(const Context& c, Tensor out, Tensor x) {
  const int64_t n = x.dim(0), in = x.dim(1);
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(blocks_for(n * (in / 16), kThreads)), dim3(kThreads)},
           round_activations_kernel<T>, ptr<T>(out), ptr<const T>(x), x.row_stride, n, in);
  });
}

}  // namespace nibble::cuda
