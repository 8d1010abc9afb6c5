// SPDX-License-Identifier: MIT
// What the products of packed NVFP4 weights with many tokens share (mixed_gemm.cu forward,
// mixed_gemm_dgrad.cu for the gradient of the tokens): the warpgroup products of compute
// capability 9.0 with weights that become exact bf16 operands in registers, once for 128 tokens, so
// that they are never written out dequantised.
//
// A block takes tiles of 256 outputs by 128 tokens, or 96, shared out evenly (stream_k.cuh).
// One group of four warps brings 128 columns of the tokens at a time to a ring in shared memory;
// two groups multiply, 128 outputs each, and decode their next operands while products run.
//
// Measured on an H200, microseconds beside dequantised panels with cuBLASLt (linear.cu), n = 96:
// qkv 6144 x 2560 16.3 (21.8), o 2560 x 4096 13.3 (18.2), gate and up 19456 x 2560 32.2 (70.8),
// down 2560 x 9728 18.8 (36.1), head 151936 x 2560 156 (563); n = 512: 43 (36), 30 (25), 108 (110),
// 59 (56). What bounds it: two warps a scheduler decode, each instruction waiting for the one
// before it, so a step takes 1.5 times what its products take (60-69 % of the peak of bf16 with
// thousands of tokens, where cuBLASLt has 80); with few tokens, sums of cut tiles: 13 MB of them
// are written and read where a tile is cut for 13 blocks, 5 to 6 us.
#pragma once
#include <algorithm>

#include "backends/cuda/device/dequantize.cuh"
#include "backends/cuda/device/packed_unit.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/wgmma_tiles.cuh"
#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/kernels/linear/stream_k.cuh"
#include "backends/cuda/launch.h"

namespace nibble::cuda::mixed {

constexpr int kConsumers = 2, kWarpgroupThreads = 128,
              kConsumerThreads = kConsumers * kWarpgroupThreads;
constexpr int kThreads = kConsumerThreads + kWarpgroupThreads;
constexpr int kOutputs = 256;   // of a tile, which has kTokens tokens: 96 or 128
constexpr int kStepCols = 128;  // of the tokens, in a step
constexpr int kStages = 4;
template <int kTokens>
using Partials = StreamKPartials<kConsumerThreads, kTokens / 8>;
template <int kTokens>
using Accumulators = float[2][kTokens / 2];  // of a thread: two halves of its group's outputs

// The order of a step's columns in shared memory, where a chunk is eight of them for all tokens,
// and chunks 2 k, 2 k + 1 are what a product multiplies: the columns' own order, or that of the
// packed layout, where the four pairs of eight columns are in four chunks, beside those of the
// three other lanes of a row. The gaps keep what a warp writes at once in different banks.
enum class Columns { plain, packed };
template <Columns kColumns, int kTokens>
struct XLayout {
  static constexpr uint32_t kBytes = kTokens * 16 + (kColumns == Columns::plain ? 16 : 0);
  static constexpr uint32_t kFour = 4 * kBytes + (kColumns == Columns::packed ? 32 : 0);

  // Right operand of the product with chunks 4 four + 2 half .. of the stage at `address`: as
  // smem_descriptor has it, whose high half does not change.
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
// For a warp to turn 16 rows of 32 tokens in: two halves of eight rows, whose banks differ.
constexpr uint32_t kTransposeHalf = 32 * 16 + 64, kTransposeBytes = 2 * kTransposeHalf;
template <int kTokens>
constexpr size_t kSharedBytes =
    kStages* kStageBytes<kTokens> + 4 * kConsumers* kTransposeBytes + 128;

// The tokens and how the work is cut.
template <int kTokens>
struct Tokens {
  static constexpr int kN8Tiles = kTokens / 8;  // groups of tokens
  const bf16* x = nullptr;                      // [n, cols]
  int64_t stride = 0;
  int n = 0, cols = 0;  // cols % 8 == 0
  int token_tiles = 0;
  StreamKSchedule list;
  Partials<kTokens> parts;

  __device__ __forceinline__ int first_token(int tile) const {
    return tile % token_tiles * kTokens;
  }
  // Groups of tokens of a tile that exist.
  __device__ __forceinline__ int n8_tiles(int tile) const {
    return min(kN8Tiles, (n - first_token(tile) + 7) / 8);
  }
};

#if defined(NIBBLE_HAS_WGMMA)

// Stages of the ring, counted over all tiles, and the memory of the warps behind it.
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

// The tokens of all steps, by the group that does not multiply. A warp reads two tokens at once, a
// lane eight columns of one; half a step is on its way while the other half is written.
template <Columns kColumns, int kTokens>
struct Producer {
  static constexpr int kRounds = kTokens / 8, kHalf = kRounds / 2;
  using Layout = XLayout<kColumns, kTokens>;
  const Tokens<kTokens>& j;
  int row, chunk;  // this lane's of eight tokens and of a step
  uint32_t to;     // where it writes in a stage

  __device__ __forceinline__ explicit Producer(const Tokens<kTokens>& j) : j(j) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32 % 4;
    row = 2 * warp + lane / 16, chunk = lane % 16;
    // Eight columns are one chunk, or word chunk / 4 of four.
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

// Registers of a block of 384 threads start at 168 each; what the multipliers take must be what the
// others give, or they wait for it for ever.
constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;
static_assert(65536 / kThreads / 8 * 8 == 168 &&
              2 * (kConsumerRegisters - 168) == 168 - kProducerRegisters);

// A block's work. Mainloop is a kernel's part in it, one a warp that multiplies:
//   load(at): asks for the weights of the first step;
//   step<which>(acc, stage, next, on_issued): multiplies, asks for the weights of step `next`
//   unless
//     that is the end, calls on_issued() when no product of an earlier step is left. `which`: 0 or
//     1 in turn where Mainloop has kWeightBuffers == 2 sets of registers for weights, as those of
//     the next step would have to be moved otherwise, and a move waits for them;
//   write(tile, acc): the outputs of a whole tile;
//   write(tile, eight, sums [2][4]): of eight tokens, from sums acc[half][4 eight ..].
template <class Mainloop, Columns kColumns, int kTokens, class Job>
__device__ __forceinline__ void run_block(const Job& job, std::byte* memory) {
  const Tokens<kTokens>& j = job.tokens;
  const SmemPipeline<kTokens> pipeline{shared_address(memory)};
  pipeline.init();
  // By a shuffle, so that branches around the products are seen to be a warp's, not a lane's.
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
  tile.load(walk);  // weights may be read ahead of the kernel before
  pdl_enter();
  Accumulators<kTokens> acc;
  int first_partial = -1, last_partial = -1;  // tiles
  unsigned i = 0;                             // steps so far
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

// More tokens than the kernels for few take, fewer than pay for dequantised weights; everything
// aligned.
inline bool mixed_fits(const Context& c, const Tensor& out, const Tensor& x) {
  return c.capability == 90 && x.dtype == DType::bf16 &&
         (out.dtype == DType::bf16 || out.dtype == DType::f32) && blas_aligned(out) &&
         blas_aligned(x) && x.dim(0) > kSkinnyTokens && x.dim(0) <= kMixedGemmTokens &&
         std::max(out.dim(1), x.dim(1)) < 1 << 28 && c.shared_per_block >= kSharedBytes<128> &&
         size_t(c.sm_count) * Partials<128>::kBytes <= kPanelBytes &&
         size_t(c.sm_count) <= Context::kOpCounters;
}
// Tiles are of 96 tokens where there are no more of them than of 128: fewer sums.
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
// One block a multiprocessor at most.
template <int kTokens, class Job>
void launch_mixed(const Context& c, void (*kernel)(Job), Job& j, int64_t output_tiles,
                  int64_t steps) {
  allow_shared(c, kernel);
  StreamKSchedule& list = j.tokens.list;
  list = make_stream_k_schedule(output_tiles * j.tokens.token_tiles, steps, c.sm_count);
  launch(c, {dim3(list.blocks), dim3(kThreads), kSharedBytes<kTokens>}, kernel, j);
}

}  // namespace nibble::cuda::mixed
