// SPDX-License-Identifier: MIT
// Where the clocks of a token go: NIBBLE_TOKEN_CLOCK=1 prints them.
#pragma once
#include <cstdio>

namespace nibble::cuda {

// Summed over layers; thread 0 of a block counts.
enum class Mark {
  norm,
  qkv,
  qkv_wait,
  attend,
  attend_wait,
  stage,
  out,
  out_wait,
  up,
  up_wait,
  down,
  down_wait,
  head,
  count
};
template <bool kOn>
struct Marks {
  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ void add(Mark) {}
  __device__ __forceinline__ void print() const {}
};
template <>
struct Marks<true> {
  long long sum[int(Mark::count)] = {}, last = 0;
  __device__ __forceinline__ void start() { last = clock64(); }
  __device__ __forceinline__ void add(Mark m) {
    const long long now = clock64();
    sum[int(m)] += now - last, last = now;
  }
  __device__ __noinline__ void print() const {
    if (threadIdx.x != 0 || blockIdx.x % 44 != 0) return;
    printf(
        "block %d: norm %lld, qkv %lld wait %lld, attention %lld wait %lld, stage %lld, out %lld "
        "wait %lld, gate_up %lld wait %lld, down %lld wait %lld, head %lld\n",
        int(blockIdx.x), sum[int(Mark::norm)], sum[int(Mark::qkv)], sum[int(Mark::qkv_wait)],
        sum[int(Mark::attend)], sum[int(Mark::attend_wait)], sum[int(Mark::stage)],
        sum[int(Mark::out)], sum[int(Mark::out_wait)], sum[int(Mark::up)], sum[int(Mark::up_wait)],
        sum[int(Mark::down)], sum[int(Mark::down_wait)], sum[int(Mark::head)]);
  }
};

}  // namespace nibble::cuda
