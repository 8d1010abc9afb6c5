// SPDX-License-Identifier: MIT
// Mixed-input GEMM forward, out [n, rows] = x W^T with packed NVFP4 weights and bf16 tokens: the
// weight side of mixed_gemm.cuh. M is the weight's rows: a consumer warp multiplies two strips of
// 16 rows; K runs over the columns, one unit (128) a step.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/linear/mixed_gemm.cuh"
#include "backends/cuda/kernels/linear/skinny_gemm_args.cuh"

namespace nibble::cuda {
namespace {

using namespace mixed;

constexpr int kTileStrips = kOutputs / int(kUnitRows);

template <int kTokens>
struct Job : SkinnyGemmArgs {
  Tokens<kTokens> tokens;
};

#if defined(NIBBLE_HAS_WGMMA)

// T: output type, bf16 or float.
template <class T, int kTokens>
struct Mainloop {
  using Layout = XLayout<Columns::packed, kTokens>;
  using Accumulators = mixed::Accumulators<kTokens>;
  const Job<kTokens>& j;
  int group, warp, lane;
  uint32_t memory;
  static constexpr int kWeightBuffers = 2;
  Unit units[kWeightBuffers][2];  // of the two strips
  const uint8_t* from[2];         // of the next step

  __device__ __forceinline__ Mainloop(const Job<kTokens>& j, int group, int warp, uint32_t memory)
      : j(j), group(group), warp(warp), lane(int(threadIdx.x) % 32), memory(memory) {}

  // Strip m of this warp; those from j.strips on do not exist.
  __device__ __forceinline__ int strip(int tile, int m) const {
    return tile / j.tokens.token_tiles * kTileStrips + 8 * group + 4 * m + warp;
  }
  template <int kWhich>
  __device__ __forceinline__ void load(const StreamKIterator& at, bool new_tile) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      if (new_tile) {
        const int s = strip(at.tile, m);
        from[m] = nullptr;
        if (s < j.strips) from[m] = j.packed + (int64_t(s) * j.units + at.step) * kUnitBytes;
      }
      Unit& u = units[kWhich][m];
      if (!from[m]) {
        u.clear();
        continue;
      }
      // Cached loads: other blocks read the same weights for other tokens.
      u.a0 = __ldg(reinterpret_cast<const uint4*>(from[m]) + lane);
      u.a1 = __ldg(reinterpret_cast<const uint4*>(from[m] + 512) + lane);
      u.scales = __ldg(reinterpret_cast<const uint32_t*>(from[m] + kUnitCodeBytes) + lane);
      from[m] += kUnitBytes;
    }
  }
  __device__ __forceinline__ void load(const StreamKIterator& at) { load<0>(at, true); }

  // A fragments of two k16 steps from one word of rows g and g + 8.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t (&b)[4], const Unit& u,
                                                int w, const uint32_t (&scale)[2],
                                                const uint32_t (&scale8)[2]) {
    decode_as<bf16>(word_of(u.a0, w), a);
    decode_as<bf16>(word_of(u.a1, w), b);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = multiply_pair<bf16>(a[i], scale[w / 2]);
      b[i] = multiply_pair<bf16>(b[i], scale8[w / 2]);
    }
  }
  // Both strips are decoded together for instruction-level parallelism: two warps a scheduler do
  // not hide the latency of one.
  template <int kWhich, class Issued>
  __device__ __forceinline__ void step(Accumulators& acc, uint32_t x, const StreamKIterator& next,
                                       Issued&& on_issued) {
    if (!next.done()) load<1 - kWhich>(next, next.step == 0);
    uint32_t scale[2][2], scale8[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint32_t scales = units[kWhich][m].scales;
      const float2 s = e4m3x2_to_float2(scales), s8 = e4m3x2_to_float2(scales >> 16);
      scale[m][0] = broadcast_pair<bf16>(s.x * kPreScale<bf16>),
      scale[m][1] = broadcast_pair<bf16>(s.y * kPreScale<bf16>);
      scale8[m][0] = broadcast_pair<bf16>(s8.x * kPreScale<bf16>);
      scale8[m][1] = broadcast_pair<bf16>(s8.y * kPreScale<bf16>);
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t a[2][4], b[2][4];
      decode(a[0], b[0], units[kWhich][0], w, scale[0], scale8[0]);
      decode(a[1], b[1], units[kWhich][1], w, scale[1], scale8[1]);
      const uint64_t low = Layout::operand(x, w, 0), high = Layout::operand(x, w, 1);
      wgmma_fence();
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        wgmma<bf16, kTokens>(acc[m], a[m][0], b[m][0], a[m][1], b[m][1], low, 1);
        wgmma<bf16, kTokens>(acc[m], a[m][2], b[m][2], a[m][3], b[m][3], high, 1);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (w == 0) on_issued();
    }
  }

  // Row scales of rows g and g + 8, or 1.
  __device__ __forceinline__ float2 row_scales(int row) const {
    float2 s = make_float2(1, 1);
    if (j.row_scale) {
      const int r = row + lane / 4;
      if (r < j.rows) s.x = j.row_scale[r];
      if (r + 8 < j.rows) s.y = j.row_scale[r + 8];
    }
    return s;
  }
  static __device__ __forceinline__ float whole(float v, float scale) {
    return v * kPostScale<bf16> * scale;
  }
  static __device__ __forceinline__ uint32_t rounded(const float* v, float scale) {
    return pack_pair<bf16>(whole(v[0], scale), whole(v[1], scale));
  }
  // fp32 outputs: rows g and g + 8 of two tokens; eight lanes have neighbouring rows, a sector.
  __device__ __forceinline__ void write_whole(int tile, int n8, int row, float2 s,
                                              const float* v) const {
    const int token = j.tokens.first_token(tile) + 8 * n8 + lane % 4 * 2;
    float* const out = static_cast<float*>(j.out) + token * j.out_stride + row + lane / 4;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (token + t >= j.n) continue;
      if (row < j.rows) out[t * j.out_stride] = whole(v[t], s.x);
      if (row + 8 < j.rows) out[t * j.out_stride + 8] = whole(v[2 + t], s.y);
    }
  }
  __device__ __forceinline__ void write(int tile, const Accumulators& acc) const {
    if constexpr (std::is_same_v<T, bf16>) {
      write_rounded(tile, acc);
    } else {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = strip(tile, m) * int(kUnitRows);
        const float2 s = row_scales(row);
#pragma unroll
        for (int e = 0; e < kTokens / 8; ++e) write_whole(tile, e, row, s, acc[m] + 4 * e);
      }
    }
  }
  // bf16 epilogue: 32 tokens at a time through the transpose buffer (stmatrix), stored in 16-byte
  // pieces of eight rows of a token.
  __device__ __forceinline__ void write_rounded(int tile, const Accumulators& acc) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int row = strip(tile, m) * int(kUnitRows), half = lane % 2;
      const float2 s = row_scales(row);
      bf16* const out = static_cast<bf16*>(j.out) + row + 8 * half;
      const uint32_t to = memory + uint32_t(lane / 8 % 2) * kTransposeHalf +
                          uint32_t(lane / 16 * 8 + lane % 8) * 16;
#pragma unroll
      for (int t = 0; t < kTokens / 32; ++t) {
        const float* v = acc[m] + 16 * t;
        __syncwarp();  // the buffer has been read
#pragma unroll
        for (int k = 0; k < 2; ++k, v += 8) {
          stmatrix_transposed(to + uint32_t(k) * 256, rounded(v, s.x), rounded(v + 2, s.y),
                              rounded(v + 4, s.x), rounded(v + 6, s.y));
        }
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int at = 16 * k + lane / 2, token = j.tokens.first_token(tile) + 32 * t + at;
          const uint4 chunk =
              load_chunk(memory + uint32_t(half) * kTransposeHalf + uint32_t(at) * 16);
          if (token < j.n && row + 8 * half < j.rows) {
            *reinterpret_cast<uint4*>(out + token * j.out_stride) = chunk;
          }
        }
      }
    }
  }
  __device__ __forceinline__ void write(int tile, int n8, const float (&sums)[2][4]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int row = strip(tile, m) * int(kUnitRows);
      const float2 s = row_scales(row);
      if constexpr (std::is_same_v<T, bf16>) {
        const uint32_t low = movmatrix_transpose(rounded(sums[m], s.x));
        const uint32_t high = movmatrix_transpose(rounded(sums[m] + 2, s.y));
        const int token = j.tokens.first_token(tile) + 8 * n8 + lane / 4;
        bf16* const out = static_cast<bf16*>(j.out) + token * j.out_stride + row + lane % 4 * 2;
        if (token < j.n && row < j.rows) *reinterpret_cast<uint32_t*>(out) = low;
        if (token < j.n && row + 8 < j.rows) *reinterpret_cast<uint32_t*>(out + 8) = high;
      } else {
        write_whole(tile, n8, row, s, sums[m]);
      }
    }
  }
};
#endif

template <class T, int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    mixed_gemm_kernel(const __grid_constant__ Job<kTokens> j) {
#if defined(NIBBLE_HAS_WGMMA)
  extern __shared__ __align__(128) std::byte memory[];
  run_block<Mainloop<T, kTokens>, Columns::packed, kTokens>(j, memory);
#endif
}

template <int kTokens>
void run(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  Job<kTokens> j;
  fill_args(j, out, Tensor{}, x, w);
  j.tokens = tokens_of<kTokens>(c, x);
  launch_mixed<kTokens>(c,
                        out.dtype == DType::f32 ? mixed_gemm_kernel<float, kTokens>
                                                : mixed_gemm_kernel<bf16, kTokens>,
                        j, (j.strips + kTileStrips - 1) / kTileStrips, j.units);
}

}  // namespace

bool mixed_gemm_fits(const Context& c, const Tensor& out, const Tensor& x, const LinearWeight& w) {
  return w.is_packed() && w.out % 8 == 0 && w.in % 8 == 0 && mixed_fits(c, out, x);
}

void mixed_gemm(const Context& c, Tensor out, Tensor x, const LinearWeight& w) {
  tiles_of_96(x) ? run<96>(c, out, x, w) : run<128>(c, out, x, w);
}

}  // namespace nibble::cuda
