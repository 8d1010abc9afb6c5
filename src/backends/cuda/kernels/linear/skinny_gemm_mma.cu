// SPDX-License-Identifier: MIT
// Skinny GEMM on packed NVFP4 weights with mma.sync: out [n, rows] = x W^T for 2 to 64 tokens (n is
// the N of the mma), bf16 or f16; with SwiGLU fused for gate_up. Chosen where skinny_gemm_wgmma.cu
// does not apply (other devices, or no plan fits).
//
// Weights are decoded to exact 16-bit A fragments in registers; tokens come as n8 tiles from shared
// memory. Split-K over a cluster: grid (row blocks of 64 x slices, token tiles); a block owns 64
// rows (with SwiGLU 32 of gate and 32 of up) and one K slice. Its 8 warps are 2 along M (two strips
// each) x 4 along K. Partials are added over warps in shared memory, then over slices through
// DSMEM, in order.
#include <algorithm>

#include "backends/cuda/device_functions/cluster.cuh"
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/dequantize.cuh"
#include "backends/cuda/device_functions/mma.cuh"
#include "backends/cuda/device_functions/packed_unit.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_args.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kRowWarps = 2, kColWarps = 4, kThreads = 32 * kRowWarps * kColWarps;
constexpr int kStrips = 2;  // of a warp
constexpr int kRows = kRowWarps * kStrips * int(kUnitRows);
constexpr int kDepth = 2;  // units in flight a strip (registers)
constexpr int kMaxSlices = 8;
// Padding between tokens in shared memory, so that eight lanes read eight different 16-byte bank
// groups.
constexpr int kTokenPadding = 64;

struct Job : SkinnyGemmArgs {
  int slices = 0;
};

// cp.async of 16 bytes, of which the last 16 - bytes become zero.
__device__ __forceinline__ void cp_async16_zfill(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// x of tokens [n0, n0 + kTokens) and this K slice. Within a unit of 128 columns the 16-byte pieces
// are transposed as a 4 x 4 matrix, to the packed layout's fragment order: piece w of quad position
// q lies at 4 w + q.
template <class T, int kTokens>
__device__ __forceinline__ void stage_tokens(std::byte* xs, int stride, const Job& j, int n0,
                                             int begin, int count) {
  const int pieces = count / 8, lane = int(threadIdx.x) % 32;
  for (int token = int(threadIdx.x) / 32; token < kTokens; token += kThreads / 32) {
    const T* x = static_cast<const T*>(j.x) + (n0 + token) * j.x_stride;
    for (int piece = lane; piece < pieces; piece += 32) {
      const int col = begin + 8 * piece, in_unit = piece % 16;
      const int set_addresses = piece - in_unit + in_unit % 4 * 4 + in_unit / 4;
      std::byte* to = xs + token * stride + set_addresses * 16;
      const bool there = n0 + token < j.n && col < j.in;
      if (j.aligned) {
        cp_async16_zfill(to, there ? x + col : static_cast<const T*>(j.x), there ? 16 : 0);
      } else {
        Pack<T, 8> v;
#pragma unroll
        for (int k = 0; k < 8; ++k) v.v[k] = there ? x[col + k] : from_f32<T>(0);
        *reinterpret_cast<Pack<T, 8>*>(to) = v;
      }
    }
  }
  cp_async_wait_all();
}

template <class T, int kN8Tiles>
__device__ __forceinline__ void multiply(const Unit (&u)[kStrips], const std::byte* xs, int stride,
                                         float (&acc)[kStrips][kN8Tiles][4]) {
  uint32_t scale[kStrips][4];  // row g blocks 2 q, 2 q + 1; row g + 8 likewise
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const float2 a = e4m3x2_to_float2(u[s].scales), b = e4m3x2_to_float2(u[s].scales >> 16);
    scale[s][0] = broadcast_pair<T>(a.x * kPreScale<T>),
    scale[s][1] = broadcast_pair<T>(a.y * kPreScale<T>);
    scale[s][2] = broadcast_pair<T>(b.x * kPreScale<T>),
    scale[s][3] = broadcast_pair<T>(b.y * kPreScale<T>);
  }
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    uint32_t a[kStrips][4], b[kStrips][4];
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      decode_as<T>(word_of(u[s].a0, w), a[s]);
      decode_as<T>(word_of(u[s].a1, w), b[s]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[s][i] = multiply_pair<T>(a[s][i], scale[s][w / 2]);
        b[s][i] = multiply_pair<T>(b[s][i], scale[s][2 + w / 2]);
      }
    }
#pragma unroll
    for (int k = 0; k < kN8Tiles; ++k) {
      const uint4 x = *reinterpret_cast<const uint4*>(xs + 8 * k * stride + 64 * w);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) {
        mma<T>(acc[s][k], a[s][0], b[s][0], a[s][1], b[s][1], x.x, x.y);
        mma<T>(acc[s][k], a[s][2], b[s][2], a[s][3], b[s][3], x.z, x.w);
      }
    }
  }
}

// Strip `strip` of the block's four as a strip of the weight; -1: behind its end.
template <bool kSwiglu>
__device__ __forceinline__ int weight_strip(const Job& j, int strip) {
  const int block = int(blockIdx.x) / j.slices;
  if constexpr (kSwiglu) {
    const int s = block * kStrips + strip % kStrips;
    return s < j.strips ? s + strip / kStrips * j.strips : -1;
  } else {
    const int s = block * kRowWarps * kStrips + strip;
    return s < j.strips ? s : -1;
  }
}

template <class T, bool kSwiglu, class Sum>
__device__ __forceinline__ void write(const Job& j, int i, int n0, Sum&& sum) {
  const auto scaled = [&](float v, int row) {
    v *= kPostScale<T>;
    return j.row_scale ? v * j.row_scale[row] : v;
  };
  if constexpr (kSwiglu) {
    constexpr int kHalf = kRows / 2;
    const int token = i / kHalf, r = i % kHalf, strip = weight_strip<true>(j, r / int(kUnitRows));
    const int row = strip * int(kUnitRows) + r % int(kUnitRows), width = j.rows / 2;
    if (n0 + token >= j.n || strip < 0) return;
    const T gate = from_f32<T>(scaled(sum(token, r), row));
    const T up = from_f32<T>(scaled(sum(token, r + kHalf), row + width));
    T* out = static_cast<T*>(j.out) + (n0 + token) * j.out_stride;
    out[row] = gate, out[row + width] = up;
    const float g = to_f32(gate);
    static_cast<T*>(j.swiglu)[(n0 + token) * j.swiglu_stride + row] =
        from_f32<T>(g * sigmoid(g) * to_f32(up));
  } else {
    const int token = i / kRows, r = i % kRows, strip = weight_strip<false>(j, r / int(kUnitRows));
    const int row = strip * int(kUnitRows) + r % int(kUnitRows);
    if (n0 + token >= j.n || strip < 0 || row >= j.rows) return;
    const float v = scaled(sum(token, r), row);
    const int64_t at = (n0 + token) * j.out_stride + row;
    if (j.out_type == DType::f32) {
      static_cast<float*>(j.out)[at] = v;
    } else {
      static_cast<T*>(j.out)[at] = from_f32<T>(v);
    }
  }
}

template <class T, int kN8Tiles, bool kSwiglu>
__global__ void __launch_bounds__(kThreads, kN8Tiles == 8 ? 1 : 2) skinny_gemm_mma_kernel(Job j) {
  constexpr int kTokens = 8 * kN8Tiles, kOutputs = kTokens * kRows;
  extern __shared__ uint4 shared[];
  const int t = int(threadIdx.x), lane = t % 32, g = lane / 4, q = lane % 4;
  const int row_warp = t / 32 % kRowWarps, col_warp = t / 32 / kRowWarps;
  const int slice = int(blockIdx.x) % j.slices, n0 = int(blockIdx.y) * kTokens;
  const int begin = j.units * slice / j.slices, count = j.units * (slice + 1) / j.slices - begin;
  const int first = count * col_warp / kColWarps, last = count * (col_warp + 1) / kColWarps;
  const uint8_t* w[kStrips];
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const int strip = weight_strip<kSwiglu>(j, row_warp * kStrips + s);
    w[s] = strip < 0 ? nullptr : j.packed + (int64_t(strip) * j.units + begin) * kUnitBytes;
  }
  const auto load = [&](Unit(&u)[kStrips], int k) {
#pragma unroll
    for (int s = 0; s < kStrips; ++s) {
      u[s].clear();  // strips behind the end are zero
      if (w[s]) u[s].load(w[s] + int64_t(k) * kUnitBytes, lane);
    }
  };
  // Prologue: weights may be prefetched before pdl_wait; tokens may not.
  Unit units[kDepth][kStrips];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (first + i < last) load(units[i], first + i);
  }
  pdl_enter();
  std::byte* xs = reinterpret_cast<std::byte*>(shared);
  const int stride = count * int(kUnitCols) * 2 + kTokenPadding;
  stage_tokens<T, kTokens>(xs, stride, j, n0, begin * int(kUnitCols), count * int(kUnitCols));
  __syncthreads();

  float acc[kStrips][kN8Tiles][4] = {};
  const std::byte* mine = xs + g * stride + q * 16;
  for (int k = first; k < last; k += kDepth) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (k + i < last) {
        multiply<T, kN8Tiles>(units[i], mine + (k + i) * int(kUnitCols) * 2, stride, acc);
        if (k + i + kDepth < last) load(units[i], k + i + kDepth);
      }
    }
  }

  __syncthreads();                                 // shared memory of x is reused for the partials
  float* sums = reinterpret_cast<float*>(shared);  // [kColWarps][kTokens][kRows]
#pragma unroll
  for (int s = 0; s < kStrips; ++s) {
    const int row = (row_warp * kStrips + s) * int(kUnitRows) + g;
#pragma unroll
    for (int k = 0; k < kN8Tiles; ++k) {
      float* at = sums + (col_warp * kTokens + 8 * k + 2 * q) * kRows + row;
      at[0] = acc[s][k][0], at[kRows] = acc[s][k][1];
      at[8] = acc[s][k][2], at[kRows + 8] = acc[s][k][3];
    }
  }
  __syncthreads();
  const auto own_sum = [&](int token, int row) {
    float v = 0;
#pragma unroll
    for (int c = 0; c < kColWarps; ++c) v += sums[(c * kTokens + token) * kRows + row];
    return v;
  };
  constexpr int kItems = kSwiglu ? kOutputs / 2 : kOutputs;
  if (j.slices == 1) {
    for (int i = t; i < kItems; i += kThreads) write<T, kSwiglu>(j, i, n0, own_sum);
    return;
  }
  // A thread overwrites only what it alone has read.
  for (int i = t; i < kOutputs; i += kThreads) sums[i] = own_sum(i / kRows, i % kRows);
  cluster_arrive();
  cluster_wait();
  const auto cluster_sum = [&](int token, int row) {
    const uint32_t at = shared_address(sums + token * kRows + row);
    float v = 0;
    for (int c = 0; c < j.slices; ++c) v += dsmem_load(dsmem_address(at, uint32_t(c)));
    return v;
  };
  for (int i = slice * kThreads + t; i < kItems; i += j.slices * kThreads) {
    write<T, kSwiglu>(j, i, n0, cluster_sum);
  }
  cluster_arrive();  // no block may exit while its shared memory is read
  cluster_wait();
}

// Tile shape and split-K factor.
struct SplitKPlan {
  int groups = 0, slices = 0;  // n8 tiles of tokens a block; 0: no plan
  size_t shared = 0;
};

size_t shared_bytes(int groups, int64_t units_of_slice) {
  const size_t tokens = size_t(8 * groups);
  return std::max(tokens * (size_t(units_of_slice * kUnitCols) * 2 + kTokenPadding),
                  size_t(kColWarps) * tokens * kRows * 4);
}

// Cost model: waves of blocks, times the units of the busiest warp plus a block's start and end,
// which cost about as much as two units.
SplitKPlan choose_plan(const Context& c, int64_t n, int64_t row_blocks, int64_t units) {
  SplitKPlan best;
  double best_time = 1e30;
  const int most = c.capability < 90 ? 1 : int(std::min<int64_t>(kMaxSlices, units));
  for (int groups : {1, 2, 4, 8}) {
    if (8 * groups >= 2 * n && groups > 1) break;  // more than twice what is needed
    for (int slices = 1; slices <= most; ++slices) {
      const int64_t per_slice = (units + slices - 1) / slices;
      const size_t shared = shared_bytes(groups, per_slice);
      if (shared > c.shared_per_block) continue;
      const int64_t resident = 2 * (shared + 1024) <= c.shared_per_block + 1024 ? 2 : 1;
      const int64_t passes = (n + 8 * groups - 1) / (8 * groups);
      const int64_t blocks = row_blocks * slices * passes, slots = resident * c.sm_count;
      // Up to one block an SM costs its own time; two resident blocks share the SM and hide each
      // other's latency.
      const bool alone = resident == 1 || blocks <= c.sm_count;
      const double waves =
          blocks <= c.sm_count ? 1.0 : double((blocks + slots - 1) / slots * resident);
      const double work = double((per_slice + kColWarps - 1) / kColWarps) * (1 + 0.25 * groups);
      const double time = waves * (work + 2) * (alone ? 1.4 : 1.0);
      if (time < best_time) best_time = time, best = {groups, slices, shared};
    }
  }
  return best;
}

int64_t row_blocks_of(int64_t rows) { return (rows + kRows - 1) / kRows; }

template <class T, int kN8Tiles, bool kSwiglu>
void launch_n8_tiles(const Context& c, const Job& j, const SplitKPlan& plan, int64_t row_blocks) {
  const auto kernel = skinny_gemm_mma_kernel<T, kN8Tiles, kSwiglu>;
  allow_shared(c, kernel);
  launch(c,
         {dim3(unsigned(row_blocks * plan.slices), blocks_for(j.n, 8 * kN8Tiles)), dim3(kThreads),
          plan.shared, unsigned(plan.slices)},
         kernel, j);
}

template <bool kSwiglu>
void run(const Context& c, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  const int64_t units = units_across(w.in), blocks = row_blocks_of(w.out);
  const SplitKPlan plan = choose_plan(c, x.dim(0), blocks, units);
  Job j;
  fill_args(j, out, act, x, w);
  j.slices = plan.slices;
  const auto go = [&](auto t) {
    using T = decltype(t);
    switch (plan.groups) {
      case 1: return launch_n8_tiles<T, 1, kSwiglu>(c, j, plan, blocks);
      case 2: return launch_n8_tiles<T, 2, kSwiglu>(c, j, plan, blocks);
      case 4: return launch_n8_tiles<T, 4, kSwiglu>(c, j, plan, blocks);
      case 8: return launch_n8_tiles<T, 8, kSwiglu>(c, j, plan, blocks);
      default: throw_internal("no way to cut a product of {} x {} x {}", j.n, j.rows, j.in);
    }
  };
  if (x.dtype == DType::bf16) {
    go(bf16{});
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    go(f16{});
  }
}

}  // namespace

bool skinny_gemm_mma_fits(const Context& c, int64_t n, const LinearWeight& w) {
  return n <= kSkinnyTokens && w.out < (int64_t(1) << 28) &&
         choose_plan(c, n, row_blocks_of(w.out), units_across(w.in)).groups > 0;
}

void skinny_gemm_mma(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  run<false>(c, out, Tensor{}, x, w);
}

void skinny_gemm_mma_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                            const LinearWeight& w) {
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda
