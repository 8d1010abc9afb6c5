// SPDX-License-Identifier: MIT
// AdamW, block by block of 256 elements, and the sum of squares of a gradient. All of it gives the
// same bits on every target: elements do not meet, and sums have a fixed number of partial sums.
#include "backends/cpu/kernels/adamw_args.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/optimizer.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cmath>

#include "hwy/cache_control.h"

#include "backends/cpu/simd/moments-inl.h"
#include "backends/cpu/simd/philox-inl.h"
#include "backends/cpu/simd/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

struct BlockBuffers {
  alignas(64) float m[kMomentBlock], v[kMomentBlock], w[kMomentBlock];
  alignas(64) uint32_t words[kMomentBlock];
};

// What an update leaves besides m', v', the new master and the words in the buffers.
struct Updated {
  float m_amax, v_amax;
  uint32_t changed;  // bit i: NVFP4 block i holds an element of the master that changed
};

// Square root and division are most of the time of this loop, so the random words and the
// decoding of int8 moments happen in it, in their shade. Other formats come decoded in x.m, x.v.
template <class M, class G, bool kInt8>
HWY_NOINLINE Updated update_block(const AdamwArgs& a, const PhiloxLanes& shared, int64_t begin,
                                  BlockBuffers& x) {
  const PhiloxLanes philox = shared;  // no store can change a local: constants leave the loop
  const DF df;
  const DI di;
  const AdamwTerms<float>& t = a.terms;
  const auto set = [&](float s) HWY_ATTR { return hn::Set(df, s); };
  const VF grad_scale = set(t.grad_scale), beta1 = set(t.beta1), beta2 = set(t.beta2);
  const VF rest1 = set(t.rest1), rest2 = set(t.rest2), eps = set(t.eps), lr = set(t.lr);
  const VF bias1 = set(t.inverse_bias1), bias2 = set(t.inverse_bias2), decay = set(t.decay);
  const G* grad = reinterpret_cast<const G*>(a.grad.data) + begin;
  M* master = reinterpret_cast<M*>(a.master.data) + begin;
  const bool from_quantised = a.step.from == UpdateFrom::quantised;
  const bool nearest = a.step.rounding == MasterRounding::nearest;
  const DynamicTables dynamic;
  const LogTables log;
  const VF m_scale = set(kInt8 ? a.m.scales[begin / kMomentBlock] : 1.0f);
  const VF v_scale = set(kInt8 ? a.v.scales[begin / kMomentBlock] : 1.0f);
  VI m_top = hn::Zero(di);
  VU v_top = hn::Zero(DU());  // v has a sign only as a NaN, which then counts as the largest
  uint32_t changed = 0;
  const auto element = [&](int64_t i, VU words) HWY_ATTR {
    VF m, v;
    if constexpr (kInt8) {
      m = hn::Mul(dynamic.values(a.m.codes + begin + i), m_scale);
      v = hn::Mul(log.values(a.v.codes + begin + i), v_scale);
    } else {
      m = load(x.m + i), v = load(x.v + i);
    }
    const VF g = hn::Mul(load(grad + i), grad_scale);
    m = hn::Add(hn::Mul(beta1, m), hn::Mul(rest1, g));
    v = hn::Add(hn::Mul(beta2, v), hn::Mul(rest2, hn::Mul(g, g)));
    const VF w = from_quantised ? load(x.w + i) : load(master + i);
    const VF ratio = hn::Div(hn::Mul(m, bias1), hn::Add(hn::Sqrt(hn::Mul(v, bias2)), eps));
    const VF step = hn::Mul(lr, hn::Add(ratio, hn::Mul(decay, w)));
    // Eq, not Ne: a NaN must go on.
    const VF next = hn::IfThenElse(hn::Eq(step, hn::Zero(df)), w, hn::Sub(w, step));
    store(m, x.m + i);
    store(v, x.v + i);
    m_top = hn::Max(m_top, magnitude_bits(m));
    v_top = hn::Max(v_top, hn::BitCast(DU(), v));
    bool same;
    if constexpr (std::is_same_v<M, bf16_t>) {
      auto* p = reinterpret_cast<uint16_t*>(master + i);
      const VU high =
          stochastic_bf16_high(next, nearest ? nearest_bits(next) : random16<Moment::first>(words));
      const auto bits = high_halves(high);
      same = hn::AllTrue(D16(), hn::Eq(bits, hn::LoadU(D16(), p)));
      hn::StoreU(bits, D16(), p);
      store(hn::BitCast(df, hn::And(high, hn::Set(DU(), 0xffff0000u))), x.w + i);
    } else {
      same = hn::AllTrue(di, hn::Eq(hn::BitCast(di, next), hn::BitCast(di, load(master + i))));
      store(next, master + i);
      store(next, x.w + i);
    }
    changed |= uint32_t(!same) << (i / kNvfp4Block);
  };
  for (int64_t i = 0; i < kMomentBlock; i += 2 * kLanes) {
    VU low = hn::Zero(DU()), high = low;
    if constexpr (kInt8 || std::is_same_v<M, bf16_t>) {
      philox.words(uint64_t(a.step.first + begin + i), &low, &high);
    }
    hn::Store(low, DU(), x.words + i);
    hn::Store(high, DU(), x.words + i + kLanes);
    element(i, low);
    element(i + kLanes, high);
  }
  return {float_of_max(di, m_top), std::abs(float_of_max(DU(), v_top)), changed};
}

HWY_NOINLINE void fill_words(const PhiloxLanes& philox, int64_t begin, uint32_t* words) {
  for (int64_t i = 0; i < kMomentBlock; i += 2 * kLanes) {
    VU low, high;
    philox.words(uint64_t(begin + i), &low, &high);
    hn::Store(low, DU(), words + i);
    hn::Store(high, DU(), words + i + kLanes);
  }
}

// `begin`: of the parameter, like all that follows.
void requantize(const AdamwArgs& a, int64_t begin, uint32_t changed, const float* w) {
#if HWY_NATIVE_FMA
  if (a.rq.rule == ScaleRule::four_over_six) {
    QuantisedBlocks q;
    if (a.master.dtype == DType::bf16 && !a.rq.weight->row_scale) {
      four_over_six<Quotient::short_values>(w, nullptr, &q);
    } else {
      float g[16];
      BlockWalk rows(a.rq, begin);
      for (float& s : g) s = a.global_scale(rows.row()), rows.next();
      four_over_six<Quotient::exact>(w, g, &q);
    }
    auto* packed = reinterpret_cast<uint8_t*>(a.rq.weight->packed.data);
    BlockWalk walk(a.rq, begin);
    for (int b = 0; b < 16; ++b, walk.next()) {
      if ((changed >> b & 1) == 0) continue;
      if (q.scale[b] == kE4m3NanCode) throw_nan_master(walk.row());
      const BlockPlace at = walk.place();
      std::memcpy(packed + at.codes, &q.low[b], 4);
      std::memcpy(packed + at.codes + kHalfBytes, &q.high[b], 4);
      packed[at.scale] = uint8_t(q.scale[b]);
    }
    return;
  }
#endif
  a.requantize_scalar(begin, changed, w);
}

// Four streams are read; the hardware follows them, but not across pages and not far enough.
template <class M, class G>
void prefetch_block(const AdamwArgs& a, int64_t at) {
  const auto lines = [](const void* p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(static_cast<const std::byte*>(p) + i);
  };
  lines(reinterpret_cast<const M*>(a.master.data) + at, kMomentBlock * sizeof(M));
  lines(reinterpret_cast<const G*>(a.grad.data) + at, kMomentBlock * sizeof(G));
  if (a.format == MomentFormat::int8) {
    lines(a.m.codes + at, kMomentBlock);
    lines(a.v.codes + at, kMomentBlock);
  }
}

template <class M, class G>
void adamw_blocks_as(const AdamwArgs& a, int64_t begin, int64_t end) {
  BlockBuffers x;
  const PhiloxLanes philox(a.step.seed, a.step.stream);
  const PhiloxLanes philox_moments(a.step.seed, moment_stream(a.format, a.step.stream));
  for (int64_t b = begin / kMomentBlock; b < end / kMomentBlock; ++b) {
    const int64_t at = b * kMomentBlock, ahead = at + 4 * kMomentBlock;
    if (ahead < end) prefetch_block<M, G>(a, ahead);
    const int64_t of_parameter = a.step.first + at;
    if (a.step.from == UpdateFrom::quantised) a.load_quantised(of_parameter, kMomentBlock, x.w);
    Updated u;
    if (a.format == MomentFormat::int8) {
      u = update_block<M, G, true>(a, philox, at, x);
    } else {
      decode_block<Moment::first>(a.format, a.m, b, x.m);
      decode_block<Moment::second>(a.format, a.v, b, x.v);
      u = update_block<M, G, false>(a, philox, at, x);
      if (a.format == MomentFormat::bf16 || a.format == MomentFormat::nvfp4) {
        fill_words(philox_moments, of_parameter, x.words);
      }
    }
    encode_block<Moment::first>(a.format, a.m, b, x.m, u.m_amax, x.words);
    encode_block<Moment::second>(a.format, a.v, b, x.v, u.v_amax, x.words);
    if (a.rq.weight && u.changed != 0) requantize(a, of_parameter, u.changed, x.w);
  }
}

// Whole moment blocks.
void adamw_blocks(const AdamwArgs& a, int64_t begin, int64_t end) {
  const bool master16 = a.master.dtype == DType::bf16, grad16 = a.grad.dtype == DType::bf16;
  if (master16 && grad16) {
    adamw_blocks_as<bf16_t, bf16_t>(a, begin, end);
  } else if (master16) {
    adamw_blocks_as<bf16_t, float>(a, begin, end);
  } else if (grad16) {
    adamw_blocks_as<float, bf16_t>(a, begin, end);
  } else {
    adamw_blocks_as<float, float>(a, begin, end);
  }
}

// 16 partial sums, whatever the vector: element i belongs to number i % 16. A float's square is
// exact in double.
double squares(const Tensor& x, int64_t begin, int64_t end) {
  using D64 = hn::ScalableTag<double>;
  using DHalf = hn::Rebind<float, D64>;
  constexpr int kWide = int(HWY_LANES(double)), kVectors = 16 / kWide;
  const D64 d;
  hn::Vec<D64> sum[kVectors];
  for (auto& s : sum) s = hn::Zero(d);
  alignas(64) float values[256];
  with_type(x.dtype, [&](auto* t) {
    const auto* p = reinterpret_cast<const std::remove_pointer_t<decltype(t)>*>(x.data);
    for (int64_t i = begin; i < end; i += 256) {
      const int64_t n = std::min<int64_t>(256, end - i);
      convert(values, p + i, n);
      if (n < 256) std::fill(values + n, values + 256, 0.0f);
      for (int k = 0; k < 256; k += 16) {
        for (int j = 0; j < kVectors; ++j) {
          const auto v = hn::PromoteTo(d, hn::Load(DHalf(), values + k + j * kWide));
          sum[j] = hn::Add(sum[j], hn::Mul(v, v));
        }
      }
    }
  });
  alignas(64) double parts[16];
  for (int j = 0; j < kVectors; ++j) hn::Store(sum[j], d, parts + j * kWide);
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::cpu {

HWY_EXPORT(adamw_blocks);
HWY_EXPORT(squares);

void sum_squares(Context& c, Tensor out, Tensor x) {
  constexpr int64_t kChunk = 1 << 16;  // part of the result's definition: its order of summation
  const int64_t n = x.numel(), chunks = (n + kChunk - 1) / kChunk;
  double* parts = c.thread_scratch.get_as<double>(size_t(chunks));
  c.pool.parallel_for(chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      parts[i] = HWY_DYNAMIC_DISPATCH(squares)(x, i * kChunk, std::min(n, i * kChunk + kChunk));
    }
  });
  double sum = 0;
  for (int64_t i = 0; i < chunks; ++i) sum += parts[i];
  *out.as<double>() = sum;
}

void adamw_step(Context& c, Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                int64_t begin, int64_t count, const AdamwStep& step, const Requantize& requantize) {
  const int64_t n = master.numel();
  const AdamwArgs args{
      master, grad,       MomentView(format, m.data, n), MomentView(format, v.data, n), format,
      step,   requantize, AdamwTerms<float>(step)};
  const int64_t whole = count / kMomentBlock;
  c.pool.parallel_for(whole, 64, [&](int64_t from, int64_t to, int) {
    HWY_DYNAMIC_DISPATCH(adamw_blocks)
    (args, begin + from * kMomentBlock, begin + to * kMomentBlock);
  });
  if (count % kMomentBlock != 0) {
    args.scalar_block(begin + whole * kMomentBlock, count % kMomentBlock);
  }
}

}  // namespace nibble::cpu
#endif
