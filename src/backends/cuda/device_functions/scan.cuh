// SPDX-License-Identifier: MIT
// Block-wide sums, maxima and inclusive scans of 64-bit integers (as CUB's BlockReduce and
// BlockScan) over a block of `Threads` threads. All threads take part; consecutive calls need no
// barrier between them.
#pragma once
#include <cstdint>

namespace nibble::cuda {

struct SumU64 {
  __device__ __forceinline__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
struct MaxU64 {
  __device__ __forceinline__ uint64_t operator()(uint64_t a, uint64_t b) const {
    return a > b ? a : b;
  }
};

template <class Op>
__device__ __forceinline__ uint64_t warp_reduce_u64(uint64_t v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    v = Op()(v, __shfl_xor_sync(0xffffffffu, (unsigned long long)v, o));
  }
  return v;
}

// The result is in every thread; 0 is neutral to both operations.
template <int Threads, class Op>
__device__ __forceinline__ uint64_t block_reduce_u64(uint64_t v) {
  static_assert(Threads % 32 == 0 && Threads <= 1024);
  __shared__ uint64_t partial[32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  v = warp_reduce_u64<Op>(v);
  __syncthreads();
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  return warp_reduce_u64<Op>(lane < Threads / 32 ? partial[lane] : 0);
}
template <int Threads>
__device__ __forceinline__ uint64_t block_sum(uint64_t v) {
  return block_reduce_u64<Threads, SumU64>(v);
}
template <int Threads>
__device__ __forceinline__ uint64_t block_max(uint64_t v) {
  return block_reduce_u64<Threads, MaxU64>(v);
}

__device__ __forceinline__ uint64_t warp_scan_u64(uint64_t v) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int o = 1; o < 32; o <<= 1) {
    const uint64_t below = __shfl_up_sync(0xffffffffu, (unsigned long long)v, unsigned(o));
    if (lane >= o) v += below;
  }
  return v;
}

// The sum of v over this thread and those before it; `total` is that of the whole block.
template <int Threads>
__device__ __forceinline__ uint64_t block_scan(uint64_t v, uint64_t& total) {
  static_assert(Threads % 32 == 0 && Threads <= 1024);
  __shared__ uint64_t partial[32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  v = warp_scan_u64(v);
  __syncthreads();
  if (lane == 31) partial[warp] = v;
  __syncthreads();
  const uint64_t sums = warp_scan_u64(lane < Threads / 32 ? partial[lane] : 0);
  const uint64_t before = __shfl_sync(0xffffffffu, (unsigned long long)sums, warp - 1);
  total = __shfl_sync(0xffffffffu, (unsigned long long)sums, 31);
  return v + (warp > 0 ? before : 0);
}

}  // namespace nibble::cuda
