// SPDX-License-Identifier: MIT
// Warp and block reductions of floats in a fixed order (deterministic).
#pragma once

namespace nibble::cuda {

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  static constexpr float kNeutral = 0.0f;
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  static constexpr float kNeutral = -3.402823466e38f;
};

// The result is in every lane.
template <class Op>
__device__ __forceinline__ float warp_reduce(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = Op()(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// The result is in every thread. Blocks of up to 1024 threads, whole warps. May be called again at
// once: the shared memory it uses is guarded by its own barriers.
template <class Op>
__device__ __forceinline__ float block_reduce(float v) {
  __shared__ float partial[32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  v = warp_reduce<Op>(v);
  __syncthreads();
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < (int(blockDim.x) + 31) / 32 ? partial[lane] : Op::kNeutral;
  return warp_reduce<Op>(v);
}

}  // namespace nibble::cuda
