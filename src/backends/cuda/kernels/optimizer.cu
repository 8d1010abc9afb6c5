// SPDX-License-Identifier: MIT
// AdamW in one pass: reads gradient, master and moments, writes master, moments and the NVFP4 copy.
// A lane owns 8 elements, two lanes an NVFP4 block, a warp a moment block of 256. (With 16 elements
// a lane the code, all unrolled, left the instruction cache: five times slower.) The arithmetic is
// that of quant/moments.h and quant/nvfp4_block.h, so the bits are the CPU's.
#include <algorithm>

#include "backends/cuda/device/dependency.cuh"
#include "backends/cuda/device/quantize_half.cuh"
#include "backends/cuda/device/types.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/launch.h"
#include "quant/moments.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256, kOwn = 8, kLanes = int(kMomentBlock) / kOwn;
static_assert(kLanes == 32);

struct AdamwArgs {
  void *master, *grad;
  MomentView m, v;
  MomentFormat format;
  int64_t begin, end;
  AdamwTerms<float> terms;
  uint64_t seed, stream;
  uint8_t* packed;  // null: there is no NVFP4 copy
  int64_t in, row_offset;
  const float* row_scale;
  ScaleRule rule;
  bool from_quantised, aligned;
};

// The tables of the 8-bit codes; lanes look up different rows, which constant memory serialises.
struct Tables {
  DynamicMap dynamic;
  LogMap log;
};
__constant__ Tables kTables;

template <class T, class V>
__device__ __forceinline__ void load8(const T* p, int count, bool aligned, V&& take) {
  if (count == kOwn && aligned) {
    constexpr int W = std::min(kOwn, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kOwn; k += W) {
      const Pack<T, W> raw = *reinterpret_cast<const Pack<T, W>*>(p + k);
#pragma unroll
      for (int i = 0; i < W; ++i) take(k + i, raw.v[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i < count) take(i, p[i]);
    }
  }
}
template <class T, class V>
__device__ __forceinline__ void store8(T* p, int count, bool aligned, V&& give) {
  if (count == kOwn && aligned) {
    constexpr int W = std::min(kOwn, 16 / int(sizeof(T)));
#pragma unroll
    for (int k = 0; k < kOwn; k += W) {
      Pack<T, W> raw;
#pragma unroll
      for (int i = 0; i < W; ++i) raw.v[i] = give(k + i);
      *reinterpret_cast<Pack<T, W>*>(p + k) = raw;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (i < count) p[i] = give(i);
    }
  }
}

__device__ __forceinline__ void random_words(uint64_t seed, uint64_t stream, int64_t element,
                                             uint32_t (&words)[kOwn]) {
#pragma unroll
  for (int k = 0; k < kOwn; k += 4) {
    const auto four = philox(seed, stream, uint64_t(element + k) / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[k + i] = four[size_t(i)];
  }
}

// The largest magnitude of a moment block; NaN when there is one.
__device__ __forceinline__ float block_amax(const float (&x)[kOwn]) {
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
  for (int o = kLanes / 2; o > 0; o /= 2) top = max(top, __shfl_xor_sync(~0u, top, o));
  return __uint_as_float(top);
}

template <Moment kMoment>
__device__ __forceinline__ void decode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, float (&out)[kOwn]) {
  const float scale = x.scales[element / kMomentBlock];
  load8(x.codes + element, count, aligned, [&](int i, uint8_t code) {
    out[i] = (kMoment == Moment::first ? dynamic_value(t.dynamic, code) : log_value(t.log, code)) *
             scale;
  });
}
template <Moment kMoment>
__device__ __forceinline__ void encode_int8(const Tables& t, const MomentView& x, int64_t element,
                                            int count, bool aligned, bool leader,
                                            const float (&in)[kOwn],
                                            const uint32_t (&words)[kOwn]) {
  const float scale = int8_moment_scale(block_amax(in)), inverse = inverse_or_zero(scale);
  if (leader && count > 0) x.scales[element / kMomentBlock] = scale;
  store8(x.codes + element, count, aligned, [&](int i) {
    const float r = in[i] * inverse;
    return kMoment == Moment::first ? dynamic_code(t.dynamic, r)
                                    : log_code(t.log, r, words[i] >> 16);
  });
}

// The other formats; rarely chosen, so their kernel decides at run time.
template <Moment kMoment>
__device__ __forceinline__ void decode_other(MomentFormat format, const MomentView& x,
                                             int64_t element, int count, float (&out)[kOwn]) {
  const float scale = x.scales ? x.scales[element / kMomentBlock] : 1.0f;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count) continue;
    const int64_t e = element + i;
    if (format == MomentFormat::f32) {
      out[i] = reinterpret_cast<const float*>(x.codes)[e];
    } else if (format == MomentFormat::bf16) {
      out[i] = to_f32(reinterpret_cast<const bf16*>(x.codes)[e]);
    } else if (format == MomentFormat::int8_linear) {
      out[i] = float(int8_t(x.codes[e])) * scale;
    } else {
      const uint8_t pair = x.codes[e / 2];
      const float s = e4m3_value(x.small_scales[e / 16]);
      const float value = e2m1_value(uint8_t(i % 2 ? pair >> 4 : pair & 15)) * s * scale;
      out[i] = kMoment == Moment::first ? value : value * value;
    }
  }
}

template <Moment kMoment>
__device__ __forceinline__ void encode_nvfp4(const MomentView& x, int64_t element, int count,
                                             bool leader, const float (&in)[kOwn],
                                             const uint32_t (&words)[kOwn]) {
  constexpr bool kFirst = kMoment == Moment::first;
  float y[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) y[i] = kFirst ? in[i] : i < count ? sqrtf(in[i]) : 0.0f;
  const float scale = nvfp4_moment_scale(block_amax(y), kFirst ? FLT_MIN : kRootScaleFloor);
  uint32_t top = __float_as_uint(moment_amax(y, kOwn));
  top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));  // two lanes share a small scale
  if (count == 0) return;
  if (leader) x.scales[element / kMomentBlock] = scale;
  const float amax = __uint_as_float(top);
  const uint8_t small = nvfp4_small_scale(amax, scale);
  if (element % 16 == 0) x.small_scales[element / 16] = small;
  const float s = e4m3_value(small) * scale;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count) continue;
    const float r = amax == 0 ? 0.0f : y[i] / s;
    const uint8_t code = kFirst ? e2m1_encode(r) : e2m1_stochastic(r, words[i] >> 16);
    uint8_t& pair = x.codes[(element + i) / 2];
    pair = uint8_t(i % 2 ? (pair & 15) | code << 4 : (pair & 0xf0) | code);
  }
}

template <Moment kMoment>
__device__ __forceinline__ void encode_other(MomentFormat format, const MomentView& x,
                                             int64_t element, int count, bool leader,
                                             const float (&in)[kOwn],
                                             const uint32_t (&words)[kOwn]) {
  constexpr bool kFirst = kMoment == Moment::first;
  if (format == MomentFormat::nvfp4) {
    encode_nvfp4<kMoment>(x, element, count, leader, in, words);
    return;
  }
  const float scale = block_amax(in) / 127;
  if (format == MomentFormat::int8_linear && leader && count > 0) {
    x.scales[element / kMomentBlock] = scale;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count) continue;
    if (format == MomentFormat::f32) {
      reinterpret_cast<float*>(x.codes)[element + i] = in[i];
    } else if (format == MomentFormat::bf16) {
      reinterpret_cast<bf16_t*>(x.codes)[element + i] =
          kFirst ? stochastic_bf16(in[i], words[i]) : stochastic_bf16_v(in[i], words[i] >> 16);
    } else {
      x.codes[element + i] = linear_code(in[i], scale);
    }
  }
}

__device__ __noinline__ uint8_t quantize_by_rule(ScaleRule rule, const float* w, float g,
                                                 uint8_t* codes) {
  switch (rule) {
    case ScaleRule::absmax: return nvfp4_block::quantize<ScaleRule::absmax>(w, g, codes);
    case ScaleRule::search: return nvfp4_block::quantize<ScaleRule::search>(w, g, codes);
    default: return nvfp4_block::quantize<ScaleRule::torchao>(w, g, codes);
  }
}

// The place of an element's block in the packed weight, and its row's scale.
__device__ __forceinline__ BlockPlace place_of(const AdamwArgs& a, int64_t element, float* g) {
  const int64_t row = a.row_offset + element / a.in;
  *g = a.row_scale ? a.row_scale[row] : 1.0f;
  return block_place(a.in, row, element % a.in / kNvfp4Block);
}

// Rules that are rarely chosen: the lane with the first half does the block.
__device__ __noinline__ void requantize_by_rule(const AdamwArgs& a, int64_t element, bool changed,
                                                const float* own) {
  float w[16];
  for (int i = 0; i < kOwn; ++i) {
    w[i] = own[i];
    w[i + kOwn] = __shfl_xor_sync(0xffffffffu, own[i], 1);
  }
  if (!changed || element % 16 != 0) return;
  float g;
  const BlockPlace at = place_of(a, element, &g);
  uint8_t bytes[8];
  const uint8_t scale = quantize_by_rule(a.rule, w, g, bytes);
  uint64_t codes = 0;
  for (int i = 0; i < 8; ++i) codes |= uint64_t(bytes[i]) << (8 * i);
  write_block(a.packed, at, codes, scale);
}

// All lanes take part; `changed` is that of the block.
template <bool kShort>
__device__ __forceinline__ void requantize(const AdamwArgs& a, int64_t element, bool changed,
                                           const float (&w)[kOwn]) {
  float g = 1;
  BlockPlace at = {};
  if (changed) at = place_of(a, element, &g);
  const QuantisedHalf q = four_over_six_half<kShort>(w, g);
  if (!changed) return;
  const int half = int(element / kOwn % 2);
  *reinterpret_cast<uint32_t*>(a.packed + at.codes + 4 * half) = q.word;
  if (half == 0) a.packed[at.scale] = q.scale;
}

// Writes weights, so the next kernel may not start early.
template <class M, class G, bool kInt8>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const __grid_constant__ AdamwArgs a) {
  __shared__ Tables tables;
  if (kInt8 && threadIdx.x < sizeof(Tables) / 4) {
    reinterpret_cast<uint32_t*>(&tables)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&kTables)[threadIdx.x];
  }
  __syncthreads();
  wait_for_previous();
  const int64_t element = a.begin + (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kOwn;
  // Lanes past the end stay: the block's maximum is found together.
  const int count = int(max(int64_t(0), min(int64_t(kOwn), a.end - element)));
  const bool leader = threadIdx.x % kLanes == 0;
  M* master = static_cast<M*>(a.master) + element;
  const G* grad = static_cast<const G*>(a.grad) + element;

  float m[kOwn] = {}, v[kOwn] = {}, w[kOwn] = {}, g[kOwn] = {};
  if (count > 0) {
    load8(grad, count, a.aligned, [&](int i, G x) { g[i] = to_f32(x); });
    load8(master, count, a.aligned, [&](int i, M x) { w[i] = to_f32(x); });
    if constexpr (kInt8) {
      decode_int8<Moment::first>(tables, a.m, element, count, a.aligned, m);
      decode_int8<Moment::second>(tables, a.v, element, count, a.aligned, v);
    } else {
      decode_other<Moment::first>(a.format, a.m, element, count, m);
      decode_other<Moment::second>(a.format, a.v, element, count, v);
    }
  }
  uint32_t words[kOwn];
  if (kInt8 || sizeof(M) == 2) random_words(a.seed, a.stream, element, words);
  bool changed = false;
  float from[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) from[i] = w[i];
  if (a.from_quantised && count == kOwn) {
    float scale;
    uint8_t byte;
    const uint64_t codes =
        read_block(a.packed, place_of(a, element, &scale), &byte) >> (element % 16 * 4);
    const float s = e4m3_value(byte) * scale;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) from[i] = e2m1_value(uint8_t(codes >> (4 * i) & 15)) * s;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i >= count) continue;
    float next = from[i];
    adamw_element(a.terms, g[i], m[i], v[i], next);
    if constexpr (sizeof(M) == 2) next = to_float(stochastic_bf16(next, words[i]));
    changed |= __float_as_uint(next) != __float_as_uint(w[i]);
    w[i] = next;
  }
  if (count > 0) store8(master, count, a.aligned, [&](int i) { return from_f32<M>(w[i]); });
  if constexpr (kInt8) {
    encode_int8<Moment::first>(tables, a.m, element, count, a.aligned, leader, m, words);
    encode_int8<Moment::second>(tables, a.v, element, count, a.aligned, leader, v, words);
  } else {
    random_words(a.seed, moment_stream(a.format, a.stream), element, words);
    encode_other<Moment::first>(a.format, a.m, element, count, leader, m, words);
    encode_other<Moment::second>(a.format, a.v, element, count, leader, v, words);
  }
  if (!a.packed) return;
  changed |= __shfl_xor_sync(0xffffffffu, int(changed), 1) != 0;
  if (__ballot_sync(0xffffffffu, changed) == 0) return;
  // The whole warp: halves of a block meet in shuffles. Products of a row scale have more bits.
  if (a.rule != ScaleRule::four_over_six) {
    requantize_by_rule(a, element, changed, w);
  } else if (sizeof(M) == 2 && !a.row_scale) {
    requantize<true>(a, element, changed, w);
  } else {
    requantize<false>(a, element, changed, w);
  }
}

// --- Sum of squares ---
// Blocks of 2^16 elements, then the blocks in order: the size alone decides the order.
constexpr int64_t kSumBlock = 1 << 16;

__device__ __forceinline__ double block_sum(double v) {
  __shared__ double part[kThreads];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (int(threadIdx.x) < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  return part[0];
}

template <class T>
__global__ void squares_kernel(double* partial, const T* x, int64_t n, bool aligned) {
  constexpr int W = 8;
  enter();
  const int64_t begin = blockIdx.x * kSumBlock, end = min(n, begin + kSumBlock);
  double sum = 0;
  for (int64_t i = begin + int64_t(threadIdx.x) * W; i < end; i += kThreads * W) {
    float v[W];
    if (aligned && i + W <= end) {
      load_f32<W>(x + i, v);
    } else {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = i + k < end ? to_f32(x[i + k]) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < W; ++k) sum = fma(double(v[k]), double(v[k]), sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_partials_kernel(double* out, const double* partial, int64_t n) {
  enter();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class F>
void with_state_type(DType t, F&& f) {
  if (t == DType::bf16) {
    f(bf16{});
  } else {
    f(float{});
  }
}

}  // namespace

void sum_squares(const Context& c, Tensor out, Tensor x) {
  const int64_t n = x.numel(), blocks = (n + kSumBlock - 1) / kSumBlock;
  auto* partial = reinterpret_cast<double*>(c.scratch());
  if (size_t(blocks) * sizeof(double) > Context::kScratchBytes) {
    throw_internal("sum_squares: {} elements", n);
  }
  with_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    launch(c, {dim3(unsigned(blocks)), dim3(kThreads)}, squares_kernel<T>, partial, ptr<const T>(x),
           n, aligned16(x.data));
  });
  launch(c, {dim3(1), dim3(kThreads)}, sum_partials_kernel, ptr<double>(out), partial, blocks);
}

void adamw_step(const Context& c, Tensor master, Tensor grad, Tensor m, Tensor v,
                MomentFormat format, int64_t begin, int64_t count, const AdamwStep& step,
                const Requantize& rq) {
  const int64_t n = master.numel();
  AdamwArgs a{
      master.data,
      grad.data,
      MomentView(format, m.data, n),
      MomentView(format, v.data, n),
      format,
      begin,
      begin + count,
      AdamwTerms<float>(step),
      step.seed,
      step.stream,
      nullptr,
      1,
      0,
      nullptr,
      rq.rule,
      step.from == UpdateFrom::quantised,
      aligned16(master.data) && aligned16(grad.data) && aligned16(m.data) && aligned16(v.data)};
  if (rq.weight) {
    a.packed = rq.weight->packed.as<uint8_t>();
    a.in = rq.weight->in, a.row_offset = rq.row_offset;
    a.row_scale = rq.weight->row_scale ? ptr<const float>(rq.weight->row_scale) : nullptr;
  }
  with_state_type(master.dtype, [&](auto mt) {
    with_state_type(grad.dtype, [&](auto gt) {
      using M = decltype(mt);
      using G = decltype(gt);
      launch(c, {dim3(blocks_for(count, kThreads * kOwn)), dim3(kThreads)},
             format == MomentFormat::int8 ? adamw_kernel<M, G, true> : adamw_kernel<M, G, false>,
             a);
    });
  });
}

}  // namespace nibble::cuda
