// SPDX-License-Identifier: MIT
// Weight gradient from few tokens: dw [rows, cols] = dy^T x, summed over up to 128 tokens, bf16,
// written (not accumulated), compute capability 9.0; optionally with partial sums of squares of dw
// for the gradient norm. Chosen by linear_wgrad(); larger batches go to cuBLASLt.
//
// Bound by writing dw, so everything else has to stay below that. Persistent grid of at most one
// block an SM; work tiles of 64 rows x 256 columns, column panel by column panel: x of a panel (all
// tokens) stays in shared memory (double-buffered), dy of each tile is streamed through up to eight
// stages. Both operands are MN-major (tokens are K), 128-byte swizzle. Warp-specialised: a producer
// warpgroup (cp.async), two consumer warpgroups that alternate tiles (ping-pong): one multiplies
// while the other stores, in whole lines.
//
// Measured on an H200, microseconds beside cuBLASLt, whose bits they are: 96 tokens qkv 12.2
// (15.3), o 9.8 (9.9), gate and up 30.4 (35.1), down 17.6 (21.7); 128 tokens 13.8 (15.6), 11.1
// (10.1), 34.1 (38.3), 20.1 (22.0). 3.3 TB/s are written where there are many tiles; o has 4.8 a
// block. With more tokens the products take longer than the writing: with 192 it was 1.2 to 1.5
// times cuBLASLt's time.
#include <algorithm>

#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/device_functions/wgmma_tiles.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"
#include "backends/cuda/kernels/linear/blas_gemm.h"
#include "backends/cuda/kernels/linear/linear.h"
#include "backends/cuda/launch.h"

namespace nibble::cuda {
namespace {

constexpr int kConsumers = 2, kWarpgroupThreads = 128,
              kThreads = (1 + kConsumers) * kWarpgroupThreads;
constexpr int kRows = 64, kCols = 256;  // of a tile
constexpr int kMostStages = 8, kPanels = 2;
constexpr uint32_t kSlabCols =
    64;  // a slab: 64 columns of all tokens, i.e. rows of 128 swizzled bytes
constexpr uint32_t kPanelSlabs = kCols / kSlabCols;
static_assert(kRows == kSlabCols);  // dy of a tile is one slab
// Transpose buffer of a warp: 16 rows of half a panel, padded against bank conflicts.
constexpr int kHalf = kCols / 2;
constexpr uint32_t kPitch = kHalf * 2 + 16, kTransposeBytes = 16 * kPitch;
constexpr uint32_t kBarrierBytes = 2 * (kMostStages + kPanels) * 8;
constexpr uint32_t kFixedBytes = 1024 + 64 + 4 * kConsumers * kTransposeBytes + kBarrierBytes;

struct Job {
  const bf16 *x, *dy;
  bf16* dw;
  double* squares;  // [square_parts]: a block's sum of squares each, then zeros; or null
  int square_parts;
  int64_t x_stride, dy_stride;
  int n, rows, cols;      // rows % 8 == cols % 8 == 0
  int tiles, work_tiles;  // tiles of a panel; of all panels
  uint32_t slab;          // bytes of a slab; tokens padded to 16
  int stages;
};

#if defined(NIBBLE_HAS_WGMMA)

// SS form, 64 x 256, both MN-major: d = a b, or += where `add`.
#define NIBBLE_A4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NIBBLE_A16(i) NIBBLE_A4(i), NIBBLE_A4(i + 4), NIBBLE_A4(i + 8), NIBBLE_A4(i + 12)
#define NIBBLE_A64(i) NIBBLE_A16(i), NIBBLE_A16(i + 16), NIBBLE_A16(i + 32), NIBBLE_A16(i + 48)
__device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %130, 0;"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
      "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
      "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,"
      "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
      "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"
      "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"
      "%126,%127}, %128, %129, p, 1, 1, 1, 1;}"
      : NIBBLE_A64(0), NIBBLE_A64(64)
      : "l"(a), "l"(b), "r"(add));
}
#undef NIBBLE_A4
#undef NIBBLE_A16
#undef NIBBLE_A64

// MN-major descriptor: tokens 16 step .. of neighbouring slabs.
__device__ __forceinline__ uint64_t desc_mn_major(uint32_t slabs, uint32_t slab_bytes, int step) {
  const uint32_t address = slabs + uint32_t(step) * 16 * 128;
  return uint64_t((address & 0x3ffffu) >> 4) | uint64_t(slab_bytes >> 4) << 16 |
         uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void stmatrix(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                         uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Position in a ring: stage index, and how often the ring was passed.
struct PipelineState {
  int index = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next(int count) {
    if (++index == count) index = 0, ++phase;
  }
};

// Map of shared memory: panels of x, stages of dy, transpose buffers, barriers.
struct Memory {
  const Job& j;
  uint32_t base;
  __device__ __forceinline__ uint32_t panel(int i) const {
    return base + uint32_t(i) * kPanelSlabs * j.slab;
  }
  __device__ __forceinline__ uint32_t stage(int i) const {
    return panel(kPanels) + uint32_t(i) * j.slab;
  }
  __device__ __forceinline__ uint32_t transpose_buffer(int warp) const {
    return stage(j.stages) + uint32_t(warp) * kTransposeBytes;
  }
  // full (0), empty (1) of a stage; indices from kMostStages on are the panels'.
  __device__ __forceinline__ Mbarrier barrier(int which, int index) const {
    return {transpose_buffer(4 * kConsumers) +
            uint32_t(which * (kMostStages + kPanels) + index) * 8};
  }
};

// Producer: cp.async of columns [first, first + kWide) of all tokens into slabs; what does not
// exist becomes zero.
template <int kWide>
__device__ __forceinline__ void load_slabs_async(uint32_t slabs, uint32_t slab_bytes,
                                                 const bf16* from, int64_t stride, int n, int first,
                                                 int limit) {
  constexpr int kChunks = kWide / 8, kTogether = kWarpgroupThreads / kChunks;
  const int t = int(threadIdx.x) % kWarpgroupThreads, chunk = t % kChunks;
  const bool inside = first + 8 * chunk < limit;
  const bf16* const column = from + (inside ? first + 8 * chunk : 0);
  const uint32_t to = slabs + uint32_t(chunk / 8) * slab_bytes;
#pragma unroll 4
  for (int row = t / kChunks; row * 128u < slab_bytes; row += kTogether) {
    const bool wanted = inside && row < n;
    cp_async16(to + uint32_t(row * 128 + ((chunk % 8) ^ (row & 7)) * 16),
               column + (wanted ? row * stride : 0), wanted);
  }
}

__device__ __forceinline__ void run_producer(const Memory& m, int begin, int end) {
  const Job& j = m.j;
  PipelineState stage, panel, pending;
  const auto signal_full = [&] {
    fence_proxy_async();
    m.barrier(0, pending.index).arrive();
    pending.next(j.stages);
  };
  int tile = begin % j.tiles, first_col = begin / j.tiles * kCols;
  for (int i = begin; i < end; ++i) {
    if (i == begin || tile == 0) {
      if (panel.phase > 0) m.barrier(1, kMostStages + panel.index).wait(panel.phase - 1);
      load_slabs_async<kCols>(m.panel(panel.index), j.slab, j.x, j.x_stride, j.n, first_col,
                              j.cols);
      panel.next(kPanels);
    }
    if (stage.phase > 0) m.barrier(1, stage.index).wait(stage.phase - 1);
    load_slabs_async<kRows>(m.stage(stage.index), j.slab, j.dy, j.dy_stride, j.n, tile * kRows,
                            j.rows);
    stage.next(j.stages);
    if (++tile == j.tiles) tile = 0, first_col += kCols;
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (i == begin) continue;  // one stage stays in flight
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    signal_full();
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  signal_full();
}

// The sum of squares of two elements, added.
__device__ __forceinline__ float add_squares(float sum, uint32_t pair) {
  const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
  return fmaf(high, high, fmaf(low, low, sum));
}

// Epilogue of a warp: 16 rows, half of the columns at a time through its transpose buffer, in whole
// lines. Adds the squares of the rounded elements; padding is zero.
__device__ __forceinline__ void store_tile(const Job& j, uint32_t memory,
                                           const float (&d)[kCols / 2], int row, int col,
                                           double& squares) {
  constexpr int kLanes = kHalf / 8, kTogether = 32 / kLanes;
  const int lane = int(threadIdx.x) % 32, own_row = lane / kLanes, chunk = lane % kLanes;
  const uint32_t to = memory + uint32_t(lane % 16) * kPitch + uint32_t(lane / 16) * 16;
  const uint32_t from = memory + uint32_t(own_row) * kPitch + uint32_t(chunk) * 16;
  bf16* const out = j.dw + int64_t(row + own_row) * j.cols + col + chunk * 8;
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    __syncwarp();  // the buffer has been read
    float sums[4] = {};
#pragma unroll
    for (int c = 0; c < kHalf / 16; ++c) {
      uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = d + kHalf / 2 * p + 8 * c + 2 * i;
        pair[i] = pack_pair<bf16>(v[0], v[1]);
        sums[i] = add_squares(sums[i], pair[i]);
      }
      stmatrix(to + uint32_t(c) * 32, pair[0], pair[1], pair[2], pair[3]);
    }
    __syncwarp();
    squares += double((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const bool inside = col + kHalf * p + chunk * 8 < j.cols;
#pragma unroll
    for (int r = 0; r < 16; r += kTogether) {
      const uint4 v = load_chunk(from + uint32_t(r) * kPitch);
      if (inside && row + own_row + r < j.rows) {
        __stcs(reinterpret_cast<uint4*>(out + int64_t(r) * j.cols + kHalf * p), v);
      }
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads, 1) wgrad_kernel(const __grid_constant__ Job j) {
#if defined(NIBBLE_HAS_WGMMA)
  extern __shared__ unsigned char shared[];
  __shared__ double of_warp[4 * kConsumers];
  const Memory m{j, (shared_address(shared) + 1023) / 1024 * 1024};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kMostStages + kPanels; ++i) {
      m.barrier(0, i).init(kWarpgroupThreads);
      m.barrier(1, i).init(i < kMostStages ? 4 : 4 * kConsumers);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  // Broadcast by shuffle, so that the compiler sees branches around wgmma as warp-uniform.
  const int all_warps = __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
  const int group = all_warps / 4 - 1, warp = all_warps % 4;
  const int begin = int(int64_t(j.work_tiles) * blockIdx.x / gridDim.x);
  const int end = int(int64_t(j.work_tiles) * (blockIdx.x + 1) / gridDim.x);
  pdl_enter();
  if (group < 0) {
    warpgroup_reg_dealloc<40>();
    run_producer(m, begin, end);
    return;
  }
  warpgroup_reg_alloc<232>();
  PipelineState stage, panel;
  if (group == 1) stage.next(j.stages);
  int at_panel = begin / j.tiles;
  const int last_panel = (end - 1) / j.tiles;
  const int steps = (j.n + 15) / 16;
  const bool elected = threadIdx.x % 32 == 0;
  const auto release_panels_before = [&](int p) {  // this warp is done with earlier panels
    for (; at_panel < p; ++at_panel) {
      if (elected) m.barrier(1, kMostStages + panel.index).arrive();
      panel.next(kPanels);
    }
  };
  double squares = 0;  // of the lane's elements
  for (int i = begin + group; i < end; i += kConsumers) {
    const int p = i / j.tiles, row = (i - p * j.tiles) * kRows + warp * 16;
    release_panels_before(p);
    m.barrier(0, stage.index).wait(stage.phase);
    float d[kCols / 2];
    const uint32_t dy = m.stage(stage.index), x = m.panel(panel.index);
    // Ping-pong: one warpgroup multiplies at a time (named barriers 2 and 3).
    if (i > begin) asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory");
    wgmma_fence();
#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      multiply(d, desc_mn_major(dy, j.slab, s), desc_mn_major(x, j.slab, s), s > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    warpgroup_fence_operand(d);
    if (i + 1 < end) asm volatile("bar.arrive %0, 256;" ::"r"(3 - group) : "memory");
    if (elected) m.barrier(1, stage.index).arrive();
    stage.next(j.stages), stage.next(j.stages);
    store_tile(j, m.transpose_buffer(4 * group + warp), d, row, p * kCols, squares);
  }
  release_panels_before(last_panel);
  if (!j.squares) return;
#pragma unroll
  for (int o = 16; o > 0; o /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, o);
  if (elected) of_warp[4 * group + warp] = squares;
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers * kWarpgroupThreads) : "memory");
  const int part = int(threadIdx.x) - kWarpgroupThreads;
  if (part == 0) {
    squares = 0;
    for (int i = 0; i < 4 * kConsumers; ++i) squares += of_warp[i];
    j.squares[blockIdx.x] = squares;
  }
  if (blockIdx.x == 0 && part >= int(gridDim.x) && part < j.square_parts) j.squares[part] = 0;
#endif
}

}  // namespace

bool skinny_wgrad_fits(const Context& c, const Tensor& dw, const Tensor& x,
                       const GradWrite& write) {
  return c.capability == 90 && x.dtype == DType::bf16 && dw.dtype == DType::bf16 &&
         write.accumulate == Accumulate::no && x.dim(0) <= kSkinnyWgradTokens &&
         c.shared_per_block >= (size_t(227) << 10) && dw.dim(0) < 1 << 22 && dw.dim(1) < 1 << 20;
}

void skinny_wgrad(const Context& c, Tensor dw, Tensor squares, Tensor dy, Tensor x) {
  Job j = {};
  j.x = ptr<const bf16>(x), j.dy = ptr<const bf16>(dy), j.dw = ptr<bf16>(dw);
  if (squares) j.squares = ptr<double>(squares), j.square_parts = int(squares.numel());
  j.x_stride = x.row_stride, j.dy_stride = dy.row_stride;
  j.n = int(x.dim(0)), j.rows = int(dw.dim(0)), j.cols = int(dw.dim(1));
  j.slab = uint32_t(j.n + 15) / 16 * 16 * 128;
  j.tiles = (j.rows + kRows - 1) / kRows, j.work_tiles = (j.cols + kCols - 1) / kCols * j.tiles;
  // At least three stages with 128 tokens and 227 KiB.
  const uint32_t slabs = uint32_t(c.shared_per_block - kFixedBytes) / j.slab;
  j.stages = std::min(kMostStages, int(slabs - kPanels * kPanelSlabs));
  allow_shared(c, wgrad_kernel);
  const size_t bytes = kFixedBytes + (kPanels * kPanelSlabs + size_t(j.stages)) * j.slab;
  launch(c, {dim3(unsigned(std::min(j.work_tiles, c.sm_count))), dim3(kThreads), bytes},
         wgrad_kernel, j);
}

}  // namespace nibble::cuda
