// SPDX-License-Identifier: MIT
// Mixed-input GEMM (NVFP4 weights x bf16 tokens) with wgmma for 65 to 256 tokens, compute
// capability 9.0: what mixed_gemm.cu (forward) and mixed_gemm_dgrad.cu (dx) share. Weights are
// decoded to exact bf16 A fragments in registers (RS form), once per tile of tokens, and never
// written out dequantised. Beyond 256 tokens panels are dequantised for cuBLASLt (linear.cu).
//
// Tiles of 256 outputs x 128 (or 96) tokens, K steps of 128, stream-K over at most one block an SM
// (stream_k.cuh). Warp-specialised: a producer warpgroup loads 128 columns of the tokens a step
// into four stages (registers to shared memory, to permute columns; full and empty mbarriers); two
// consumer warpgroups take 128 outputs each and decode their next operands while wgmmas run.
//
// Measured on an H200, microseconds beside dequantised panels with cuBLASLt (linear.cu), n = 96:
// qkv 6144 x 2560 16.3 (21.8), o 2560 x 4096 13.3 (18.2), gate and up 19456 x 2560 32.2 (70.8),
// down 2560 x 9728 18.8 (36.1), head 151936 x 2560 156 (563); n = 512: 43 (36), 30 (25), 108 (110),
// 59 (56). What bounds it: two warps a scheduler decode, each instruction waiting for the one
// before it, so a step takes 1.5 times what its wgmmas take (60-69 % of the bf16 peak with
// thousands of tokens, where cuBLASLt has 80); with few tokens, the stream-K fixup: 13 MB of
// partials are written and read where a tile is split over 13 blocks, 5 to 6 us.
#pragma once
#include <algorithm>

#include "backends/cuda/device_functions/dequantize.cuh"
#include "backends/cuda/device_functions/packed_unit.cuh"
#include "backends/cuda/device_functions/shared_memory.cuh"
#include "backends/cuda/device_functions/wgmma_tiles.cuh"
#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/kernels/linear/stream_k.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda::mixed {

constexpr int kConsumers = 2, kWarpgroupThreads = 128,
              kConsumerThreads = kConsumers * kWarpgroupThreads;
constexpr int kThreads = kConsumerThreads + kWarpgroupThreads;
constexpr int kOutputs = 256;   // rows of a tile (M); its tokens (N): kTokens, 96 or 128
constexpr int kStepCols = 128;  // K of a step
constexpr int kStages = 4;
template <int kTokens>
using Partials = StreamKPartials<kConsumerThreads, kTokens / 8>;
template <int kTokens>
using Accumulators = float[2][kTokens / 2];  // of a thread: two m64 tiles of its warpgroup

// Layout of a stage: core matrices of 8 columns ("chunk") for all tokens; chunks 2 k, 2 k + 1 form
// a k16 step. Columns are in plain order, or in that of the packed layout, where the four pairs of
// eight columns go to four chunks, beside those of the quad's three other lanes. Padding against
// bank conflicts of the producer's stores.
enum class Columns { plain, packed };
template <Columns kColumns, int kTokens>
struct XLayout {
  static constexpr uint32_t kBytes = kTokens * 16 + (kColumns == Columns::plain ? 16 : 0);
  static constexpr uint32_t kFour = 4 * kBytes + (kColumns == Columns::packed ? 32 : 0);

  // B descriptor of chunks 4 four + 2 half .. of a stage; as smem_descriptor, whose high half is
  // constant.
  static __device__ __forceinline__ uint64_t operand(uint32_t stage, int four, int half) {
    const uint32_t low = stage / 16 + uint32_t(four) * (kFour / 16) +
                         uint32_t(half) * (2 * kBytes / 16) + (kBytes / 16 << 16);
    return uint64_t(128 / 16) << 32 | low;
  }
};
template <int kTokens>
constexpr uint32_t kStageBytes = (4 * XLayout<Columns::plain, kTokens>::kFour + 127) / 128 * 128;
static_assert(kStageBytes<96> >= 4 * XLayout<Columns::packed, 96>::kFour &&
              kStageBytes<128> >= 4 * XLayout<Columns::packed, 128>::kFour);
// Transpose buffer of a warp's epilogue, 16 rows x 32 tokens: two halves of eight rows, padded
// against bank conflicts.
constexpr uint32_t kTransposeHalf = 32 * 16 + 64, kTransposeBytes = 2 * kTransposeHalf;
template <int kTokens>
constexpr size_t kSharedBytes =
    kStages* kStageBytes<kTokens> + 4 * kConsumers* kTransposeBytes + 128;

// The B operand and the stream-K schedule.
template <int kTokens>
struct Tokens {
  static constexpr int kN8Tiles = kTokens / 8;  // of a tile
  const bf16* x = nullptr;                      // [n, cols]
  int64_t stride = 0;
  int n = 0, cols = 0;  // cols % 8 == 0
  int token_tiles = 0;
  StreamKSchedule list;
  Partials<kTokens> parts;

  __device__ __forceinline__ int first_token(int tile) const {
    return tile % token_tiles * kTokens;
  }
  // n8 tiles of a tile that hold tokens.
  __device__ __forceinline__ int n8_tiles(int tile) const {
    return min(kN8Tiles, (n - first_token(tile) + 7) / 8);
  }
};

#if defined(NIBBLE_HAS_WGMMA)

// Shared memory: the stages, numbered over all tiles, the transpose buffers, the barriers.
template <int kTokens>
struct SmemPipeline {
  uint32_t base;
  __device__ __forceinline__ uint32_t stage(unsigned i) const {
    return base + i % kStages * kStageBytes<kTokens>;
  }
  __device__ __forceinline__ uint32_t transpose_buffer(int warp) const {
    return base + kStages * kStageBytes<kTokens> + uint32_t(warp) * kTransposeBytes;
  }
  __device__ __forceinline__ Mbarrier full(unsigned i) const {
    return {transpose_buffer(4 * kConsumers) + i % kStages * 8};
  }
  __device__ __forceinline__ Mbarrier empty(unsigned i) const {
    return {transpose_buffer(4 * kConsumers) + (kStages + i % kStages) * 8};
  }
  // By all threads of the block.
  __device__ __forceinline__ void init() const {
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < kStages; ++i) {
        full(i).init(kWarpgroupThreads);
        empty(i).init(4 * kConsumers);
      }
    }
    __syncthreads();
  }
};

// The producer warpgroup. A warp reads two tokens at once, a lane eight columns of one; half a step
// is in flight while the other half is stored.
template <Columns kColumns, int kTokens>
struct Producer {
  static constexpr int kRounds = kTokens / 8, kHalf = kRounds / 2;
  using Layout = XLayout<kColumns, kTokens>;
  const Tokens<kTokens>& j;
  int row, chunk;  // token (of eight) and 8-column chunk of this lane
  uint32_t to;     // offset in a stage

  __device__ __forceinline__ explicit Producer(const Tokens<kTokens>& j) : j(j) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32 % 4;
    row = 2 * warp + lane / 16, chunk = lane % 16;
    // Eight columns are one chunk (plain), or word chunk / 4 of four chunks (packed).
    const int place = kColumns == Columns::plain ? chunk : chunk % 4;
    to = uint32_t(row) * 16 + (kColumns == Columns::plain
                                   ? uint32_t(place) * Layout::kBytes
                                   : uint32_t(place) * Layout::kFour + uint32_t(chunk / 4) * 4);
  }
  __device__ __forceinline__ void load(uint4 (&v)[kHalf], const StreamKIterator& at,
                                       int half) const {
    const int token = j.first_token(at.tile) + row + half * kHalf * 8;
    const int col = at.step * kStepCols + 8 * chunk;
    const bf16* x = j.x + token * j.stride + col;
#pragma unroll
    for (int r = 0; r < kHalf; ++r) {
      v[r] = make_uint4(0, 0, 0, 0);
      if (token + 8 * r < j.n && col < j.cols) {
        v[r] = *reinterpret_cast<const uint4*>(x + 8 * r * j.stride);
      }
    }
  }
  __device__ __forceinline__ void store(const uint4 (&v)[kHalf], uint32_t stage, int half) const {
    stage += to + uint32_t(half * kHalf) * 128;
#pragma unroll
    for (int r = 0; r < kHalf; ++r, stage += 128) {
      if constexpr (kColumns == Columns::plain) {
        store_chunk(stage, v[r].x, v[r].y, v[r].z, v[r].w);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          store_word(stage + uint32_t(k) * Layout::kBytes, word_of(v[r], k));
      }
    }
  }
  __device__ __forceinline__ void run(const SmemPipeline<kTokens>& pipeline) const {
    StreamKIterator walk(j.list);
    uint4 early[kHalf], late[kHalf];
    load(early, walk, 0);
    for (unsigned i = 0; !walk.done(); ++i) {
      load(late, walk, 1);
      if (i >= kStages) pipeline.empty(i).wait(i / kStages - 1);
      store(early, pipeline.stage(i), 0);
      if (walk.advance()) load(early, walk, 0);
      store(late, pipeline.stage(i), 1);
      fence_proxy_async();
      pipeline.full(i).arrive();
    }
  }
};

// setmaxnreg: 384 threads start with 168 registers each; what consumers take must be what the
// producer gives up, or they wait for ever.
constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;
static_assert(65536 / kThreads / 8 * 8 == 168 &&
              2 * (kConsumerRegisters - 168) == 168 - kProducerRegisters);

// The body of a block. Mainloop is the kernel's weight side, one object per consumer warp:
//   load(at): loads the weights of the first step;
//   step<which>(acc, stage, next, on_issued): multiplies, loads the weights of step `next` unless
//     that is the end, calls on_issued() when no wgmma of an earlier step is in flight (its stage
//     can be released). `which`: 0 or 1 in turn where kWeightBuffers == 2, i.e. weights are double-
//     buffered in registers; a register move instead would wait for the loads;
//   write(tile, acc): epilogue of a whole tile;
//   write(tile, n8, sums [2][4]): epilogue of one n8 tile of tokens, after a fixup.
template <class Mainloop, Columns kColumns, int kTokens, class Job>
__device__ __forceinline__ void run_block(const Job& job, std::byte* memory) {
  const Tokens<kTokens>& j = job.tokens;
  const SmemPipeline<kTokens> pipeline{shared_address(memory)};
  pipeline.init();
  // Broadcast by shuffle, so that the compiler sees branches around wgmma as warp-uniform.
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
  if (warp / 4 == kConsumers) {
    warpgroup_reg_dealloc<kProducerRegisters>();
    pdl_enter();
    Producer<kColumns, kTokens>(j).run(pipeline);
    return;
  }
  warpgroup_reg_alloc<kConsumerRegisters>();
  const int lane = int(threadIdx.x) % 32;
  Mainloop tile(job, warp / 4, warp % 4, pipeline.transpose_buffer(warp));
  StreamKIterator walk(j.list);
  tile.load(walk);  // weights may be prefetched before pdl_wait
  pdl_enter();
  Accumulators<kTokens> acc;
  int first_partial = -1,
      last_partial = -1;  // tiles that begin before, end behind this block's range
  unsigned i = 0;         // steps so far, over all tiles
  while (!walk.done()) {
    const StreamKIterator piece = walk;
#pragma unroll
    for (int k = 0; k < kTokens / 2; ++k) acc[0][k] = acc[1][k] = 0;
    const auto step = [&](auto which) {
      constexpr int kWhich = decltype(which)::value;
      const bool first = walk.step == piece.step;
      walk.advance();
      pipeline.full(i).wait(i / kStages);
      tile.template step<kWhich>(acc, pipeline.stage(i), walk, [&] {
        if (!first && lane == 0) pipeline.empty(i - 1).arrive();
      });
      ++i;
    };
    for (int left = piece.end - piece.step; left > 0; --left) {
      if (Mainloop::kWeightBuffers == 1 || i % 2 == 0) {
        step(std::integral_constant<int, 0>());
      } else {
        step(std::integral_constant<int, 1>());
      }
    }
    wgmma_wait<0>();
    warpgroup_fence_operand(acc[0]), warpgroup_fence_operand(acc[1]);
    if (lane == 0) pipeline.empty(i - 1).arrive();
    if (piece.whole()) {
      tile.write(piece.tile, acc);
    } else if (const bool first_reduces = j.parts.contributors(j.list, piece.tile).first_reduces();
               first_reduces && piece.step == 0) {
      j.parts.reduce_into_first(j.list, piece.tile, j.n8_tiles(piece.tile), acc);  // its last tile
      tile.write(piece.tile, acc);
    } else {
      j.parts.store_partials(j.list, piece.tile, j.n8_tiles(piece.tile), acc);
      if (!first_reduces) (piece.step == 0 ? last_partial : first_partial) = piece.tile;
    }
  }
  for (int shared = first_partial;; shared = last_partial) {
    if (shared >= 0) {
      j.parts.reduce_slice(j.list, shared, j.n8_tiles(shared),
                           [&](int n8, const float(&sums)[2][4]) { tile.write(shared, n8, sums); });
    }
    if (shared == last_partial) break;
  }
}
#endif

// 65 .. kMixedGemmTokens tokens, everything aligned.
inline bool mixed_fits(const Context& c, const Tensor& out, const Tensor& x) {
  return c.capability == 90 && x.dtype == DType::bf16 &&
         (out.dtype == DType::bf16 || out.dtype == DType::f32) && blas_aligned(out) &&
         blas_aligned(x) && x.dim(0) > kSkinnyTokens && x.dim(0) <= kMixedGemmTokens &&
         std::max(out.dim(1), x.dim(1)) < 1 << 28 && c.shared_per_block >= kSharedBytes<128> &&
         size_t(c.sm_count) * Partials<128>::kBytes <= kPanelBytes &&
         size_t(c.sm_count) <= Context::kOpCounters;
}
// 96-token tiles where there are no more of them than of 128: fewer accumulators and partials.
inline bool tiles_of_96(const Tensor& x) { return (x.dim(0) + 95) / 96 == (x.dim(0) + 127) / 128; }
template <int kTokens>
Tokens<kTokens> tokens_of(const Context& c, const Tensor& x) {
  Tokens<kTokens> t;
  t.x = ptr<const bf16>(x), t.stride = x.row_stride;
  t.n = int(x.dim(0)), t.cols = int(x.dim(1));
  t.token_tiles = (t.n + kTokens - 1) / kTokens;
  t.parts = {reinterpret_cast<float4*>(c.scratch()), c.counters()};
  return t;
}
// At most one block an SM, so that all are resident (stream_k.cuh waits).
template <int kTokens, class Job>
void launch_mixed(const Context& c, void (*kernel)(Job), Job& j, int64_t output_tiles,
                  int64_t steps) {
  allow_shared(c, kernel);
  StreamKSchedule& list = j.tokens.list;
  list = make_stream_k_schedule(output_tiles * j.tokens.token_tiles, steps, c.sm_count);
  launch(c, {dim3(list.blocks), dim3(kThreads), kSharedBytes<kTokens>}, kernel, j);
}

}  // namespace nibble::cuda::mixed
