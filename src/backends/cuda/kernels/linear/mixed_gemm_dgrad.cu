// SPDX-License-Identifier: MIT
// Mixed-input GEMM backward, dx [n, in] = dy W with packed NVFP4 weights and bf16 dy: the weight
// side of mixed_gemm.cuh. M is the weight's columns, K its rows: a step is 128 rows, eight strips.
//
// The A operand is the weight transposed. Warp w of a warpgroup has word w of every lane of a unit,
// i.e. eight neighbouring columns of each quarter; a pair of those, of eight rows, is an 8 x 8
// matrix that movmatrix transposes. So M index 8 (h % 2) + g of half h / 2 is column 32 (g / 2) + 8
// w + 2 h + g % 2 of the unit, pairs h = 0 .. 3.
#include "backends/cuda/device_functions/dependent_launch.cuh"
#include "backends/cuda/kernels/linear/mixed_gemm.cuh"

namespace nibble::cuda {
namespace {

using namespace mixed;

constexpr int kStepStrips = kStepCols / int(kUnitRows);

template <int kTokens>
struct Job {
  Tokens<kTokens> tokens;  // dy
  const uint8_t* packed = nullptr;
  void* dx = nullptr;
  int64_t dx_stride = 0;
  int strips = 0, units = 0, in = 0;
};

#if defined(NIBBLE_HAS_WGMMA)

// A lane's word `warp` of rows g and g + 8 of a strip, and their scales.
struct Words {
  uint32_t a, a8, scales;
};

// T: type of dx, bf16 or float.
template <class T, int kTokens>
struct Mainloop {
  using Layout = XLayout<Columns::plain, kTokens>;
  using Accumulators = mixed::Accumulators<kTokens>;
  const Job<kTokens>& j;
  int group, warp, lane;
  uint32_t selector;  // of the two bytes of a word's scales
  static constexpr int kWeightBuffers = 1, kHalf = kStepStrips / 2;
  Words early[kHalf], late[kHalf];

  __device__ __forceinline__ Mainloop(const Job<kTokens>& j, int group, int warp, uint32_t)
      : j(j), group(group), warp(warp), lane(int(threadIdx.x) % 32) {
    selector = uint32_t(warp / 2) | uint32_t(2 + warp / 2) << 4;
  }
  __device__ __forceinline__ int unit(int tile) const {
    return tile / j.tokens.token_tiles * kConsumers + group;
  }
  // Half of a step's strips.
  __device__ __forceinline__ void load(Words (&words)[kHalf], const StreamKIterator& at,
                                       int half) const {
    const int of_row = unit(at.tile), first = at.step * kStepStrips + half * kHalf;
    const uint8_t* p = j.packed + (int64_t(first) * j.units + of_row) * kUnitBytes;
    const int64_t stride = int64_t(j.units) * kUnitBytes;
#pragma unroll
    for (int s = 0; s < kHalf; ++s, p += stride) {
      Words& u = words[s];
      u = {0, 0, 0};
      if (first + s >= j.strips || of_row >= j.units) continue;
      u.a = __ldg(reinterpret_cast<const uint32_t*>(p) + 4 * lane + warp);
      u.a8 = __ldg(reinterpret_cast<const uint32_t*>(p + 512) + 4 * lane + warp);
      u.scales = __ldg(reinterpret_cast<const uint32_t*>(p + kUnitCodeBytes) + lane);
    }
  }
  __device__ __forceinline__ void load(const StreamKIterator& at) {
    load(early, at, 0), load(late, at, 1);
  }

  // A fragments of 16 rows of the weight, transposed: a of rows g, b of rows g + 8.
  __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t (&b)[4], const Words& u) const {
    const float2 s = e4m3x2_to_float2(__byte_perm(u.scales, 0, selector));
    const uint32_t scale = broadcast_pair<bf16>(s.x * kPreScale<bf16>),
                   scale8 = broadcast_pair<bf16>(s.y * kPreScale<bf16>);
    decode_as<bf16>(u.a, a);
    decode_as<bf16>(u.a8, b);
#pragma unroll
    for (int h = 0; h < 4; ++h) {
      a[h] = movmatrix_transpose(multiply_pair<bf16>(a[h], scale));
      b[h] = movmatrix_transpose(multiply_pair<bf16>(b[h], scale8));
    }
  }
  // Strips `first` and the next of a step; decoded together, as in mixed_gemm.cu.
  __device__ __forceinline__ void multiply(Accumulators& acc, const Words& u, const Words& v,
                                           uint32_t dy, int first) const {
    uint32_t a[2][4], b[2][4];
    decode(a[0], b[0], u);
    decode(a[1], b[1], v);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint64_t rows = Layout::operand(dy, first / 2, s);
      wgmma<bf16, kTokens>(acc[0], a[s][0], a[s][1], b[s][0], b[s][1], rows, 1);
      wgmma<bf16, kTokens>(acc[1], a[s][2], a[s][3], b[s][2], b[s][3], rows, 1);
    }
    wgmma_commit();
    wgmma_wait<1>();
  }
  template <int, class Issued>
  __device__ __forceinline__ void step(Accumulators& acc, uint32_t dy, const StreamKIterator& next,
                                       Issued&& on_issued) {
#pragma unroll
    for (int s = 0; s < kHalf; s += 2) {
      multiply(acc, early[s], early[s + 1], dy, s);
      if (s == 0) on_issued();
    }
    if (!next.done()) load(early, next, 0);
#pragma unroll
    for (int s = 0; s < kHalf; s += 2) multiply(acc, late[s], late[s + 1], dy, kHalf + s);
    if (!next.done()) load(late, next, 1);
  }

  __device__ __forceinline__ void write(int tile, const Accumulators& acc) const {
#pragma unroll
    for (int e = 0; e < kTokens / 8; ++e) write(tile, e, acc[0] + 4 * e, acc[1] + 4 * e);
  }
  __device__ __forceinline__ void write(int tile, int n8, const float (&sums)[2][4]) const {
    write(tile, n8, sums[0], sums[1]);
  }
  // bf16: from two columns of eight tokens per pair h to four pairs of one token.
  __device__ __forceinline__ void write(int tile, int n8, const float* low,
                                        const float* high) const {
    if constexpr (std::is_same_v<T, float>) {
      write_whole(tile, n8, low, 0), write_whole(tile, n8, high, 4);
    } else {
      const auto pair = [](const float* v) {
        return movmatrix_transpose(
            pack_pair<bf16>(v[0] * kPostScale<bf16>, v[1] * kPostScale<bf16>));
      };
      const uint4 v = make_uint4(pair(low), pair(low + 2), pair(high), pair(high + 2));
      const int token = j.tokens.first_token(tile) + 8 * n8 + lane / 4;
      const int col = unit(tile) * int(kUnitCols) + 32 * (lane % 4) + 8 * warp;
      if (token < j.tokens.n && col < j.in) {
        *reinterpret_cast<uint4*>(static_cast<bf16*>(j.dx) + token * j.dx_stride + col) = v;
      }
    }
  }
  // fp32: columns `first` + g and two further, of two tokens.
  __device__ __forceinline__ void write_whole(int tile, int n8, const float* v, int first) const {
    const int token = j.tokens.first_token(tile) + 8 * n8 + lane % 4 * 2, g = lane / 4;
    const int col = unit(tile) * int(kUnitCols) + 32 * (g / 2) + 8 * warp + first + g % 2;
    float* const out = static_cast<float*>(j.dx) + token * j.dx_stride + col;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      if (token + t >= j.tokens.n || col >= j.in) continue;
      out[t * j.dx_stride] = v[t] * kPostScale<bf16>;
      out[t * j.dx_stride + 2] = v[2 + t] * kPostScale<bf16>;
    }
  }
};
#endif

template <class T, int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    mixed_gemm_dgrad_kernel(const __grid_constant__ Job<kTokens> j) {
#if defined(NIBBLE_HAS_WGMMA)
  extern __shared__ __align__(128) std::byte memory[];
  run_block<Mainloop<T, kTokens>, Columns::plain, kTokens>(j, memory);
#endif
}

template <int kTokens>
void run(const Context& c, Tensor dx, Tensor dy, const LinearWeight& w) {
  Job<kTokens> j;
  j.packed = w.packed.as<uint8_t>();
  j.dx = dx.data, j.dx_stride = dx.row_stride;
  j.strips = int(strips_of(w.out)), j.units = int(units_across(w.in)), j.in = int(w.in);
  j.tokens = tokens_of<kTokens>(c, dy);
  launch_mixed<kTokens>(c,
                        dx.dtype == DType::f32 ? mixed_gemm_dgrad_kernel<float, kTokens>
                                               : mixed_gemm_dgrad_kernel<bf16, kTokens>,
                        j, (w.in + kOutputs - 1) / kOutputs,
                        (j.strips + kStepStrips - 1) / kStepStrips);
}

}  // namespace

bool mixed_gemm_dgrad_fits(const Context& c, const Tensor& dx, const Tensor& dy,
                           const LinearWeight& w) {
  return w.is_packed() && !w.row_scale && w.out % 8 == 0 && w.in % 8 == 0 && mixed_fits(c, dx, dy);
}

void mixed_gemm_dgrad(const Context& c, Tensor dx, Tensor dy, const LinearWeight& w) {
  tiles_of_96(dy) ? run<96>(c, dx, dy, w) : run<128>(c, dx, dy, w);
}

}  // namespace nibble::cuda
