// SPDX-License-Identifier: MIT
// Packed NVFP4 weights times one token, on tensor cores.
//
// The eight columns of the right operand, useless for one token, keep the scale blocks apart: in
// one of two products it is zero except in the lanes (2 q, q), which hold block 2 q of the token,
// in the other except in the lanes (2 q + 1, q), which hold block 2 q + 1. So D[row][2 q] and
// D[row][2 q + 1] are the unscaled sums of those blocks, and they arrive in the lane that holds
// that row's scales: one fp32 multiply-add a block. Codes become operands by shifts alone
// (packed_layout.cuh); the token is kept times kTokenScale to undo their tiny exponent.
//
// A block owns 16 rows (with swiglu 16 of the gate and 16 of the up half); its warps share the
// columns, and their sums are added in order.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/dequantize.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/kernels/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kDepth = 5;  // units a warp has in flight

// Leaves equal room above and below: |x| from 2^-60 to 2^63 is exact.
template <class T>
constexpr float kTokenScale = std::is_same_v<T, f16> ? 1.0f : 0x1p64f;

struct Job {
  const uint8_t* packed;
  const void* x;
  const float* row_scale;
  AnyFloats out;     // [rows], or gate_up [2 F]
  AnyFloats swiglu;  // [F] or null
  int rows, in, units;
  bool aligned;  // x may be read 16 bytes at a time
};

struct Unit {
  uint4 a0, a1;  // codes of rows g and g + 8
  uint32_t scales;

  __device__ __forceinline__ void load(const uint8_t* p, int lane) {
    a0 = __ldcs(reinterpret_cast<const uint4*>(p) + lane);
    a1 = __ldcs(reinterpret_cast<const uint4*>(p + 512) + lane);
    scales = __ldcs(reinterpret_cast<const uint32_t*>(p + kUnitCodeBytes) + lane);
  }
};

template <class T>
__device__ __forceinline__ void two_products(float (&d)[4], uint32_t row, uint32_t row8,
                                             uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3) {
  uint32_t a[4], b[4];
  decode_as<T>(row, a);
  decode_as<T>(row8, b);
  mma<T>(d, a[0], b[0], a[1], b[1], x0, x1);
  mma<T>(d, a[2], b[2], a[3], b[3], x2, x3);
}

// even, odd: where the lane reads blocks 2 q and 2 q + 1 of the token, or zeros.
template <class T>
__device__ __forceinline__ void multiply(const Unit& u, const uint4* even, const uint4* odd,
                                         float& acc0, float& acc1) {
  float d[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
  const uint4 x0 = even[0], x1 = even[1], y0 = odd[0], y1 = odd[1];
  two_products<T>(d, u.a0.x, u.a1.x, x0.x, x0.y, x0.z, x0.w);
  two_products<T>(e, u.a0.z, u.a1.z, y0.x, y0.y, y0.z, y0.w);
  two_products<T>(d, u.a0.y, u.a1.y, x1.x, x1.y, x1.z, x1.w);
  two_products<T>(e, u.a0.w, u.a1.w, y1.x, y1.y, y1.z, y1.w);
  const float2 s = scales_of(u.scales), s8 = scales_of(u.scales >> 16);
  acc0 = fmaf(s.x, d[0], acc0);
  acc0 = fmaf(s.y, e[1], acc0);
  acc1 = fmaf(s8.x, d[2], acc1);
  acc1 = fmaf(s8.y, e[3], acc1);
}

// The token times kTokenScale, zeros behind its end. All of a thread's loads come before its first
// store.
template <class T, int kThreads>
__device__ __forceinline__ void stage_token(T* xs, const Job& j) {
  constexpr int kBatch = 5;
  const T* x = static_cast<const T*>(j.x);
  const int t = int(threadIdx.x), count = j.units * int(kUnitCols);
  if (!j.aligned) {
    for (int i = t; i < count; i += kThreads) {
      const float v = i < j.in ? to_f32(x[i]) : 0.0f;
      xs[i] = from_f32<T>(v * kTokenScale<T>);
    }
    return;
  }
  const uint32_t scale = pair_of<T>(kTokenScale<T>);
  for (int first = t; first < count / 8; first += kBatch * kThreads) {
    uint4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kThreads;
      v[b] = make_uint4(0, 0, 0, 0);
      if (8 * i < j.in) v[b] = __ldcg(reinterpret_cast<const uint4*>(x) + i);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kThreads;
      if constexpr (kTokenScale<T> != 1.0f) {
        v[b].x = multiply_pair<T>(v[b].x, scale), v[b].y = multiply_pair<T>(v[b].y, scale);
        v[b].z = multiply_pair<T>(v[b].z, scale), v[b].w = multiply_pair<T>(v[b].w, scale);
      }
      if (i < count / 8) reinterpret_cast<uint4*>(xs)[i] = v[b];
    }
  }
}

// One row of a strip; scale is its row's and, with swiglu, the up row's.
template <class T, bool kSwiglu, int kWarps>
__device__ __forceinline__ void finish(const Job& j, int row, int t, const float* sums,
                                       const float (&scale)[2]) {
  constexpr float kFactor = 1.0f / (kCodeScale<T> * kTokenScale<T>);
  const auto value = [&](int half) {
    float v = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) v += sums[(half * kWarps + w) * int(kUnitRows) + t];
    v *= kFactor;
    return j.row_scale ? v * scale[half] : v;
  };
  if constexpr (kSwiglu) {
    const int width = j.rows / 2;
    const T gate = from_f32<T>(value(0)), up = from_f32<T>(value(1));
    static_cast<T*>(j.out.data)[row] = gate;
    static_cast<T*>(j.out.data)[row + width] = up;
    const float g = to_f32(gate);
    static_cast<T*>(j.swiglu.data)[row] = from_f32<T>(g * sigmoid(g) * to_f32(up));
  } else {
    if (row < j.rows) j.out.set(row, value(0));
  }
}

template <class T, bool kSwiglu, int kWarps>
__global__ void __launch_bounds__(kWarps*(kSwiglu ? 64 : 32)) gemv_kernel(Job j) {
  constexpr int kHalves = kSwiglu ? 2 : 1;
  extern __shared__ uint4 shared[];
  __shared__ float sums[kHalves * kWarps * kUnitRows];
  __shared__ uint4 zeros[2];
  const int t = int(threadIdx.x), lane = t % 32, g = lane / 4, q = lane % 4;
  const int half = t / 32 / kWarps, warp = t / 32 % kWarps, strip = int(blockIdx.x);
  const int first = j.units * warp / kWarps, last = j.units * (warp + 1) / kWarps;
  const int weight_strip = strip + half * (j.rows / 2 / int(kUnitRows));
  const uint8_t* w = j.packed + int64_t(weight_strip) * j.units * kUnitBytes;
  // Weights may be read ahead of the kernel before; the token may not.
  Unit units[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (first + i < last) units[i].load(w + int64_t(first + i) * kUnitBytes, lane);
  }
  const int row = strip * int(kUnitRows) + t;  // of the thread that will finish it
  float scale[2] = {1, 1};
  if (j.row_scale && t < int(kUnitRows) && row < j.rows) {
    scale[0] = j.row_scale[row];
    if (kSwiglu) scale[1] = j.row_scale[row + j.rows / 2];
  }
  enter();
  T* xs = reinterpret_cast<T*>(shared);
  stage_token<T, kHalves * kWarps * 32>(xs, j);
  if (t < 2) zeros[t] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  const bool mine = g / 2 == q;
  const uint4* even = mine && g % 2 == 0 ? shared + 2 * g : zeros;
  const uint4* odd = mine && g % 2 == 1 ? shared + 2 * g : zeros;
  const int even_step = even == zeros ? 0 : 16, odd_step = odd == zeros ? 0 : 16;
  float acc0 = 0, acc1 = 0;
  for (int k = first; k < last; k += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (k + i < last) {
        multiply<T>(units[i], even + (k + i) * even_step, odd + (k + i) * odd_step, acc0, acc1);
        if (k + i + kDepth < last) {
          units[i].load(w + int64_t(k + i + kDepth) * kUnitBytes, lane);
        }
      }
    }
  }
  acc0 += __shfl_xor_sync(0xffffffffu, acc0, 1);
  acc1 += __shfl_xor_sync(0xffffffffu, acc1, 1);
  acc0 += __shfl_xor_sync(0xffffffffu, acc0, 2);
  acc1 += __shfl_xor_sync(0xffffffffu, acc1, 2);
  if (q < 2) sums[(half * kWarps + warp) * int(kUnitRows) + g + 8 * q] = q ? acc1 : acc0;
  __syncthreads();
  if (t < int(kUnitRows)) finish<T, kSwiglu, kWarps>(j, row, t, sums, scale);
}

template <bool kSwiglu>
void run(const Context& c, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  const int64_t strips = strips_of(kSwiglu ? w.out / 2 : w.out), units = units_across(w.in);
  Job j = {};
  j.packed = w.packed.as<uint8_t>();
  j.x = x.data;
  j.row_scale = w.row_scale ? ptr<const float>(w.row_scale) : nullptr;
  j.out = AnyFloats(out);
  j.swiglu = AnyFloats(act);
  j.rows = int(w.out), j.in = int(w.in), j.units = int(units);
  j.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;  // in % 16 == 0 is the format's rule
  const size_t shared = size_t(units * kUnitCols) * 2;
  const auto go = [&](auto kernel, int warps) {
    allow_shared(c, kernel);
    launch(c, {dim3(unsigned(strips)), dim3(unsigned(32 * warps)), shared}, kernel, j);
  };
  // Few strips get more warps each, so that enough bytes are on their way; where fewer let all
  // blocks of the fused product (five a multiprocessor) run at once, it gets two. It has the bits
  // of the other: the same warps along K.
  const int64_t per_sm = (strips_of(w.out) + c.sm_count - 1) / c.sm_count;
  const int warps = per_sm <= 2 ? 8 : per_sm > 5 && per_sm <= 10 ? 2 : 4;
  const auto with_warps = [&](auto t) {
    using T = decltype(t);
    constexpr int kHalves = kSwiglu ? 2 : 1;
    switch (warps) {
      case 8: return go(gemv_kernel<T, kSwiglu, 8>, 8 * kHalves);
      case 4: return go(gemv_kernel<T, kSwiglu, 4>, 4 * kHalves);
      default: return go(gemv_kernel<T, kSwiglu, 2>, 2 * kHalves);
    }
  };
  if (x.dtype == DType::bf16) {
    with_warps(bf16{});
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    with_warps(f16{});
  }
}

}  // namespace

bool gemv_fits(const Context& c, const LinearWeight& w) {
  return size_t(units_across(w.in) * kUnitCols) * 2 + (8 << 10) <= c.shared_per_block &&
         w.out < (int64_t(1) << 28);
}

void gemv(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  if (c.one_launch_a_token) return gemv_parts(c, out, x, w);
  run<false>(c, out, Tensor{}, x, w);
}

void gemv_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w) {
  if (c.one_launch_a_token) return gemv_parts_swiglu(c, act, gate_up, x, w);
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda
