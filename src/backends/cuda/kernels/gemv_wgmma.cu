// SPDX-License-Identifier: MIT
// Packed NVFP4 weights times 2 to 64 tokens with the warpgroup products of compute capability 9.0:
// weights become exact 16-bit operands in registers, tokens are read by the tensor cores from
// shared memory.
//
// The slices of K are a cluster of blocks that keep their slice of the tokens and go through tiles
// of 64 rows (with swiglu 32 of the gate and 32 of the up half), each of their three groups of four
// warps its own; weights are requested across tiles. A block keeps the sums of `slots` tiles a
// group, then the cluster adds them in the order of the slices and writes them.
#include <algorithm>
#include <array>

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/dequantize.cuh"
#include "backends/cuda/device/packed_unit.cuh"
#include "backends/cuda/device/wgmma.cuh"
#include "backends/cuda/kernels/few_tokens.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kGroups = 3, kGroupThreads = 128, kThreads = kGroups * kGroupThreads;
constexpr int kTileRows = 64, kTileStrips = kTileRows / int(kUnitRows);
constexpr int kDepth = 4;                  // units a warp has in flight
constexpr int kSumStride = kTileRows + 4;  // between tokens, so that the lanes' banks differ
constexpr int kMaxSlices = KernelLimits::kMaxCluster;
using ClusterCounts = decltype(KernelLimits::clusters);

struct Job : FewTokens {
  int tiles = 0, slices = 0, slots = 0, exchanges = 0, unit_bytes = 0;
  bool packs = false;  // four outputs may be written at once
};

// The tokens of a unit of 128 columns in shared memory: four pieces of 32 columns, each of two
// products of 16, each of two halves of 8, each of matrices of 8 tokens by 16 bytes. What a lane
// quarter q multiplies lies in its columns 32 q ..: word q of the 16 bytes. The padding keeps the
// writes of a warp in different banks.
constexpr int half_bytes(int tokens) { return tokens * 16; }
constexpr int piece_bytes(int tokens) { return 4 * half_bytes(tokens) + 32; }
constexpr int unit_bytes(int tokens) { return 4 * piece_bytes(tokens); }
constexpr int slot_bytes(int tokens) { return tokens * kSumStride * 4; }

// All tokens, columns [begin, begin + count) in units; a warp takes a unit of two tokens at a time.
template <class T, int kTokens>
__device__ __forceinline__ void stage_tokens(std::byte* xs, const Job& j, int begin, int count) {
  constexpr int kBatch = 8, kWarps = kThreads / 32;
  const int lane = int(threadIdx.x) % 32, piece = lane % 16, q = piece / 4, w = piece % 4;
  const int total = count * ((j.n + 1) / 2);
  for (int first = int(threadIdx.x) / 32; first < total; first += kBatch * kWarps) {
    uint4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kWarps, unit = i % count, token = i / count * 2 + lane / 16;
      const int col = (begin + unit) * int(kUnitCols) + 8 * piece;
      v[b] = make_uint4(0, 0, 0, 0);
      if (i >= total || token >= j.n || col >= j.in) continue;
      const T* x = static_cast<const T*>(j.x) + token * j.x_stride + col;
      if (j.aligned) {
        v[b] = __ldcg(reinterpret_cast<const uint4*>(x));
      } else {
        Pack<T, 8> values;
#pragma unroll
        for (int k = 0; k < 8; ++k) values.v[k] = x[k];
        v[b] = *reinterpret_cast<const uint4*>(&values);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kWarps, unit = i % count, token = i / count * 2 + lane / 16;
      if (i >= total) continue;
      std::byte* to = xs + unit * unit_bytes(kTokens) + w * piece_bytes(kTokens) + token * 16;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        *reinterpret_cast<uint32_t*>(to + k * half_bytes(kTokens) + 4 * q) = word_of(v[b], k);
      }
    }
  }
}

// Four neighbouring sums of the cluster's blocks, added in order.
__device__ __forceinline__ float4 sum_of(uint32_t at, int slices) {
  float4 v = make_float4(0, 0, 0, 0);
#if __CUDA_ARCH__ >= 900
  float4 part[kMaxSlices];
#pragma unroll
  for (int s = 0; s < kMaxSlices; ++s) {
    part[s] = make_float4(0, 0, 0, 0);
    if (s < slices) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(part[s].x), "=f"(part[s].y), "=f"(part[s].z), "=f"(part[s].w)
                   : "r"(address_in_block(at, uint32_t(s)))
                   : "memory");
    }
  }
#pragma unroll
  for (int s = 0; s < kMaxSlices; ++s) {
    if (s < slices) v.x += part[s].x, v.y += part[s].y, v.z += part[s].z, v.w += part[s].w;
  }
#endif
  return v;
}

// Four sums, scaled; the scales are asked for first.
template <class T>
__device__ __forceinline__ void scaled_sums(const Job& j, int row, uint32_t at, int slices,
                                            float (&v)[4]) {
  float scale[4] = {1, 1, 1, 1};
  if (j.row_scale) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (row + k < j.rows) scale[k] = __ldg(j.row_scale + row + k);
    }
  }
  const float4 sum = sum_of(at, slices);
  v[0] = sum.x * kDown<T>, v[1] = sum.y * kDown<T>;
  v[2] = sum.z * kDown<T>, v[3] = sum.w * kDown<T>;
  if (!j.row_scale) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] *= scale[k];
}

template <class O>
__device__ __forceinline__ void store4(O* to, const float (&v)[4], int count, bool packs) {
  if (packs && count >= 4) {
    store_f32<4>(to, v);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k < count) to[k] = from_f32<O>(v[k]);
    }
  }
}

// Four rows of a token from the sums at `slot`.
template <class T, bool kSwiglu>
__device__ __forceinline__ void finish(const Job& j, int tile, int token, int quad, uint32_t slot,
                                       int slices) {
  const uint32_t at = slot + uint32_t(token * kSumStride + 4 * quad) * 4;
  float v[4];
  if constexpr (kSwiglu) {
    const int row = tile * (kTileRows / 2) + 4 * quad, width = j.rows / 2;
    if (row >= width) return;  // width % 16 == 0
    float up[4], act[4];
    scaled_sums<T>(j, row, at, slices, v);
    scaled_sums<T>(j, row + width, at + kTileRows / 2 * 4, slices, up);
    T* out = static_cast<T*>(j.out) + token * j.out_stride + row;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float g = to_f32(from_f32<T>(v[k]));
      act[k] = g * sigmoid(g) * to_f32(from_f32<T>(up[k]));
    }
    store4(out, v, 4, j.packs);
    store4(out + width, up, 4, j.packs);
    store4(static_cast<T*>(j.swiglu) + token * j.swiglu_stride + row, act, 4, j.packs);
  } else {
    const int row = tile * kTileRows + 4 * quad;
    if (row >= j.rows) return;
    scaled_sums<T>(j, row, at, slices, v);
    const int64_t to = token * j.out_stride + row;
    if (j.out_type == DType::f32) {
      store4(static_cast<float*>(j.out) + to, v, j.rows - row, j.packs);
    } else {
      store4(static_cast<T*>(j.out) + to, v, j.rows - row, j.packs);
    }
  }
}

#if defined(NIBBLE_HAS_WGMMA)
// One unit times all tokens; x is its description in shared memory. Groups of products are left
// behind: the caller waits before it reads acc.
template <class T, int kTokens>
__device__ __forceinline__ void multiply(const Unit& u, uint64_t x, float (&acc)[kTokens / 2],
                                         int add) {
  const float2 s = scales_of(u.scales), s8 = scales_of(u.scales >> 16);
  const uint32_t scale[2] = {pair_of<T>(s.x * kUp<T>), pair_of<T>(s.y * kUp<T>)};
  const uint32_t scale8[2] = {pair_of<T>(s8.x * kUp<T>), pair_of<T>(s8.y * kUp<T>)};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    uint32_t a[4], b[4];
    decode_as<T>(word_of(u.a0, w), a);
    decode_as<T>(word_of(u.a1, w), b);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = multiply_pair<T>(a[i], scale[w / 2]);
      b[i] = multiply_pair<T>(b[i], scale8[w / 2]);
    }
    const uint64_t piece = x + uint64_t(w * piece_bytes(kTokens) / 16);
    wgmma_fence();
    wgmma<T, kTokens>(acc, a[0], b[0], a[1], b[1], piece, w > 0 ? 1 : add);
    wgmma<T, kTokens>(acc, a[2], b[2], a[3], b[3], piece + 2 * half_bytes(kTokens) / 16, 1);
    wgmma_commit();
    wgmma_wait<1>();
  }
}
#endif

template <class T, int kTokens, bool kSwiglu>
__global__ void __launch_bounds__(kThreads, 1) gemv_wgmma_kernel(Job j) {
#if defined(NIBBLE_HAS_WGMMA)
  extern __shared__ __align__(128) std::byte xs[];
  const int t = int(threadIdx.x), lane = t % 32, g = lane / 4, q = lane % 4;
  // Branches around the products must be seen to be a warp's, not a lane's.
  const int all_warps = __shfl_sync(0xffffffffu, t / 32, 0);
  const int group = all_warps / 4, warp = all_warps % 4;
  const int slice = int(blockIdx.x) % j.slices, cluster = int(blockIdx.x) / j.slices;
  const int clusters = int(gridDim.x) / j.slices, step = kGroups * clusters;
  const int begin = j.units * slice / j.slices, count = j.units * (slice + 1) / j.slices - begin;
  // Tile r of a group, and of it this warp's strip; null behind the last.
  const auto tile_of = [&](int of_group, int r) {
    return r * step + of_group * clusters + cluster;
  };
  const auto strip_at = [&](int r) -> const uint8_t* {
    const int tile = tile_of(group, r);
    int strip = tile * kTileStrips + warp;
    if constexpr (kSwiglu) strip = tile * (kTileStrips / 2) + warp % 2;
    if (strip >= j.strips) return nullptr;
    if constexpr (kSwiglu) strip += warp / 2 * j.strips;
    return j.packed + (int64_t(strip) * j.units + begin) * kUnitBytes;
  };
  const int first_tile = tile_of(group, 0);
  const int mine = first_tile < j.tiles ? (j.tiles - 1 - first_tile) / step + 1 : 0;

  Unit units[kDepth];
  int load_tile = 0, load_unit = 0;
  const uint8_t* from = strip_at(0);
  const auto load_next = [&](Unit& u) {
    if (load_tile >= mine) return;
    if (from) {
      u.load(from + int64_t(load_unit) * kUnitBytes, lane);
    } else {
      u.clear();
    }
    if (++load_unit == count) load_unit = 0, from = strip_at(++load_tile);
  };
  // Weights may be read ahead of the kernel before; tokens may not.
#pragma unroll
  for (int i = 0; i < kDepth; ++i) load_next(units[i]);
  enter();
  stage_tokens<T, kTokens>(xs, j, begin, count);
  fence_for_wgmma();
  __syncthreads();

  std::byte* const slots = xs + j.unit_bytes;  // [slots][kGroups] of sums [kTokens][kSumStride]
  int filled = 0, exchanged = 0;
  const auto slot_of = [&](int s, int of_group) {
    return slots + (s * kGroups + of_group) * slot_bytes(kTokens);
  };
  constexpr int kQuads = (kSwiglu ? kTileRows / 2 : kTileRows) / 4;
  const auto exchange = [&] {
    if (j.slices == 1) {  // a group's own affair: slots is 1
      asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
      const uint32_t slot = shared_address(slot_of(0, group));
      for (int i = t % kGroupThreads; i < j.n * kQuads; i += kGroupThreads) {
        finish<T, kSwiglu>(j, tile_of(group, exchanged), i / kQuads, i % kQuads, slot, 1);
      }
      asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
    } else {
      cluster_arrive();
      cluster_wait();
      for (int i = slice * kThreads + t; i < j.slots * kGroups * kTokens * kQuads;
           i += j.slices * kThreads) {
        const int token = i / kQuads % kTokens, s = i / (kQuads * kTokens);
        const int tile = tile_of(s % kGroups, exchanged * j.slots + s / kGroups);
        if (token >= j.n || tile >= j.tiles) continue;
        finish<T, kSwiglu>(j, tile, token, i % kQuads,
                           shared_address(slot_of(s / kGroups, s % kGroups)), j.slices);
      }
      cluster_arrive();  // nobody overwrites or leaves what may still be read
      cluster_wait();
    }
    filled = 0, ++exchanged;
  };

  const uint64_t x0 = operand_in_shared(shared_address(xs), half_bytes(kTokens));
  float acc[kTokens / 2];
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) acc[i] = 0;
  // The next unit is units[ring]. The exchange stands outside of the unrolled part: there is one
  // copy of it to fetch.
  int unit = 0, left = mine * count, ring = 0;
  const int exchanges = j.slices == 1 ? mine : j.exchanges;
  while (exchanged < exchanges) {
    bool full = false;
    while (left > 0 && !full) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (d < ring || left == 0 || full) continue;
        multiply<T, kTokens>(units[d], x0 + uint64_t(unit * (unit_bytes(kTokens) / 16)), acc,
                             unit > 0 ? 1 : 0);
        load_next(units[d]);
        --left, ring = (d + 1) % kDepth;
        if (++unit < count) continue;
        unit = 0;
        wgmma_wait<0>();
        float* sums = reinterpret_cast<float*>(slot_of(filled, group)) + 2 * q * kSumStride +
                      warp * int(kUnitRows) + g;
#pragma unroll
        for (int k = 0; k < kTokens / 8; ++k) {
          float* at = sums + 8 * k * kSumStride;
          at[0] = acc[4 * k], at[kSumStride] = acc[4 * k + 1];
          at[8] = acc[4 * k + 2], at[kSumStride + 8] = acc[4 * k + 3];
        }
        full = ++filled == j.slots;
      }
    }
    exchange();
  }
#endif
}

// How the work is cut.
struct Cut {
  int slices = 0, clusters = 0, slots = 0, exchanges = 0;  // slices 0: there is none
  size_t shared = 0;
};

int tokens_for(int64_t n) { return n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64; }

// The least time by a count of clocks: reading the tokens, then the units of the busiest cluster,
// at the rate of memory or of one group's chain of instructions, then adding up.
Cut cut_for(const Context& c, int64_t n, int64_t tiles, int64_t units,
            const ClusterCounts& clusters_of) {
  const int tokens = tokens_for(n);
  Cut best;
  double best_time = 1e30;
  for (int slices = 1; slices <= kMaxSlices; slices *= 2) {
    const int64_t clusters = std::min<int64_t>(clusters_of[size_t(slices)], tiles);
    if (clusters == 0 || units < slices) continue;
    const int64_t per_slice = (units + slices - 1) / slices;
    const int64_t x_bytes = per_slice * unit_bytes(tokens), slot = kGroups * slot_bytes(tokens);
    const int64_t room = int64_t(c.shared_per_block) - x_bytes;
    if (room < slot) continue;
    const int64_t of_cluster = (tiles + clusters - 1) / clusters;
    const int64_t rounds = (of_cluster + kGroups - 1) / kGroups;
    const int64_t slots = slices == 1 ? 1 : std::min(rounds, room / slot);
    const int64_t exchanges = (rounds + slots - 1) / slots;
    const double compute =
        double(per_slice) * std::max(300.0 * double(of_cluster), 600.0 * double(rounds));
    double time = double(x_bytes) / 50 + compute;
    if (slices > 1) {
      time += 2000.0 * double(exchanges) + double(of_cluster * slot_bytes(tokens)) / 24;
    } else {
      time += 300.0 * double(rounds);
    }
    if (time >= best_time) continue;
    best_time = time;
    best = {slices, int(clusters), int(slots), int(exchanges), size_t(x_bytes + slots * slot)};
  }
  return best;
}

// How many clusters of a size run at the same time, where a block needs a multiprocessor for
// itself.
template <class... Params>
const ClusterCounts& resident_clusters(const Context& c, void (*kernel)(Params...)) {
  allow_shared(c, kernel);
  ClusterCounts& most = c.limits_of(reinterpret_cast<const void*>(kernel)).clusters;
  if (most[1] > 0) return most;
  for (unsigned slices = 2; slices <= kMaxSlices; slices *= 2) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(slices * unsigned(c.sm_count));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = c.shared_per_block;  // no static part
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {slices, 1, 1};
    config.attrs = &attribute, config.numAttrs = 1;
    NIBBLE_CUDA(cudaOccupancyMaxActiveClusters(&most[slices], kernel, &config));
    most[slices] = std::min(most[slices], c.sm_count / int(slices));
  }
  most[1] = c.sm_count;
  return most;
}

template <class T, int kTokens, bool kSwiglu>
void launch_tokens(const Context& c, Job j) {
  const auto kernel = gemv_wgmma_kernel<T, kTokens, kSwiglu>;
  const Cut cut = cut_for(c, j.n, j.tiles, j.units, resident_clusters(c, kernel));
  if (cut.slices == 0) throw_internal("no way to cut a product of {} x {} x {}", j.n, j.rows, j.in);
  j.slices = cut.slices, j.slots = cut.slots, j.exchanges = cut.exchanges;
  j.unit_bytes = (j.units + j.slices - 1) / j.slices * unit_bytes(kTokens);
  launch(
      c,
      {dim3(unsigned(cut.clusters * cut.slices)), dim3(kThreads), cut.shared, unsigned(cut.slices)},
      kernel, j);
}

bool aligned(const Tensor& t, uintptr_t bytes, int64_t elements) {
  return !t || (reinterpret_cast<uintptr_t>(t.data) % bytes == 0 && t.row_stride % elements == 0);
}

template <bool kSwiglu>
void run(const Context& c, Tensor out, Tensor act, Tensor x, const LinearWeight& w) {
  Job j;
  describe(j, out, act, x, w);
  constexpr int kStrips = kSwiglu ? kTileStrips / 2 : kTileStrips;
  j.tiles = (j.strips + kStrips - 1) / kStrips;
  j.packs = aligned(out, 16, 4) && (!kSwiglu || aligned(act, 16, 4));
  const auto go = [&](auto t) {
    using T = decltype(t);
    switch (tokens_for(j.n)) {
      case 8: return launch_tokens<T, 8, kSwiglu>(c, j);
      case 16: return launch_tokens<T, 16, kSwiglu>(c, j);
      case 32: return launch_tokens<T, 32, kSwiglu>(c, j);
      default: return launch_tokens<T, 64, kSwiglu>(c, j);
    }
  };
  if (x.dtype == DType::bf16) {
    go(bf16{});
  } else if constexpr (!kSwiglu) {  // f16 is rare: not worth compiling the fused kernel for
    go(f16{});
  }
}

}  // namespace

bool gemv_wgmma_fits(const Context& c, int64_t n, const LinearWeight& w) {
  if (c.capability != 90 || n > kBatchTokens || w.out >= (int64_t(1) << 28)) return false;
  // Some number of slices that fits always runs: clusters of eight are portable.
  const int tokens = tokens_for(n);
  const int64_t units = units_across(w.in), slices = units >= 8 ? 8 : 1;
  return size_t((units + slices - 1) / slices * unit_bytes(tokens) +
                kGroups * slot_bytes(tokens)) <= c.shared_per_block;
}

void gemv_wgmma(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  run<false>(c, out, Tensor{}, x, w);
}

void gemv_wgmma_swiglu(const Context& c, Tensor act, Tensor gate_up, Tensor x,
                       const LinearWeight& w) {
  run<true>(c, gate_up, act, x, w);
}

}  // namespace nibble::cuda
