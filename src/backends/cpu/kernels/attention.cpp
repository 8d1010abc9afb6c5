// SPDX-License-Identifier: MIT
// Causal grouped-query attention. Keys are taken in blocks of 32 counted from the sequence's first
// slot, with a running maximum and sum; all arithmetic of one query is its own, so how queries are
// grouped for speed does not show in the result. Scores of bf16 queries and keys are sums of pairs
// where the processor has those (kernels/gemm.h), in another order than those of floats.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/target_control.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/kernels/attention_scores-inl.h"
#include "backends/cpu/kernels/gemm_pack-inl.h"
#include "hwy/cache_control.h"
#include "quant/codec.h"

#ifndef NIBBLE_CPU_ATTENTION_TYPES
#define NIBBLE_CPU_ATTENTION_TYPES
namespace nibble::cpu {

constexpr int64_t kQueryRows = 64;  // (token, head) pairs that share a block of keys

// Queries [first, last) of a sequence against key heads [kv_head, kv_head + kv_heads), `group`
// query heads each. Decoding takes several key heads at once, because they lie side by side in
// memory.
struct AttentionWork {
  GemmElement element;  // of scores
  Tensor out, q, k, v;
  float* lse;  // [N, Hq] or null
  Sequence sequence;
  int64_t kv_head, kv_heads, group, first, last;
};

// Floats of scratch per thread: q, o, keys, values, scores of four rows, and per row
// max and sum.
constexpr int64_t attention_scratch(int64_t width) {
  return 2 * kQueryRows * width + 2 * kKeyBlock * width + 4 * kKeyBlock + 2 * kQueryRows;
}

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

// Rows of one head lie far apart in the cache and the hardware does not guess the next one.
template <class T>
HWY_INLINE void prefetch_row(const T* p, int64_t width) {
  for (int64_t i = 0; i < width; i += 64 / int64_t(sizeof(T))) hwy::Prefetch(p + i);
}

// Keys or values of one head as floats, one after the other; meanwhile the rows at `ahead` (null:
// none) are fetched, because they are wanted next.
template <class T>
HWY_NOINLINE void load_rows(const T* from, int64_t stride, int64_t count, int64_t width, float* to,
                            const T* ahead) {
  for (int64_t j = 0; j < count; ++j) {
    if (ahead) prefetch_row(ahead + j * stride, width);
    convert(to + j * width, from + j * stride, width);
  }
}

HWY_INLINE VF load_f8(const uint8_t* p) {
  const DU du;
  const DI di;
  const DF df;
  const VU u = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, DF>(), p));
  const VU sign = hn::ShiftLeft<24>(hn::And(u, hn::Set(du, 0x80u)));
  const VU a = hn::And(u, hn::Set(du, 0x7fu));
  const VI ai = hn::BitCast(di, a);
  const VU normal = hn::Add(hn::ShiftLeft<20>(a), hn::Set(du, 120u << 23));
  const VU sub = hn::BitCast(du, hn::Mul(hn::ConvertTo(df, ai), hn::Set(df, 0x1p-9f)));
  VU r = hn::IfThenElse(hn::RebindMask(du, hn::Lt(ai, hn::Set(di, 8))), sub, normal);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(ai, hn::Set(di, 126))), hn::Set(du, 0x7fc00000u), r);
  return hn::BitCast(df, hn::Or(r, sign));
}
// ... of the FP8 cache.
HWY_NOINLINE void load_rows(const uint8_t* from, int64_t stride, int64_t count, int64_t width,
                            float* to, const uint8_t* ahead) {
  for (int64_t j = 0; j < count; ++j, from += stride, to += width) {
    if (ahead) prefetch_row(ahead + j * stride, width);
    int64_t d = 0;
    for (; d + kLanes <= width; d += kLanes) store(load_f8(from + d), to + d);
    for (; d < width; ++d) to[d] = e4m3_value(from[d]);
  }
}
template <class F>
HWY_INLINE void with_cache_type(DType t, F f) {
  if (t == DType::f8_e4m3) {
    f(static_cast<uint8_t*>(nullptr));
  } else {
    with_type(t, f);
  }
}

// Turns one row of scores, of which `count` are real, into weights; returns the factor that
// earlier sums must be multiplied by.
HWY_NOINLINE float softmax_row(float* s, int64_t count, float* running_max, float* running_sum) {
  const DF df;
  VF m = hn::Set(df, -__builtin_inff());
  for (int v = 0; v < kKeyVectors; ++v) {
    const int64_t left = count - v * kLanes;
    VF x = hn::Load(df, s + v * kLanes);
    if (left < kLanes) {
      x = hn::IfThenElse(hn::FirstN(df, size_t(HWY_MAX(left, int64_t(0)))), x,
                         hn::Set(df, -__builtin_inff()));
      hn::Store(x, df, s + v * kLanes);
    }
    m = hn::Max(m, x);
  }
  const float old_max = *running_max;
  const float new_max = HWY_MAX(old_max, max_lanes(m));
  const VF shift = hn::Set(df, new_max);
  VF sum = hn::Zero(df);
  for (int v = 0; v < kKeyVectors; ++v) {
    const VF p = exp(hn::Sub(hn::Load(df, s + v * kLanes), shift));
    hn::Store(p, df, s + v * kLanes);
    sum = hn::Add(sum, p);
  }
  // The first block has nothing to rescale: exp(-inf - new_max) = 0.
  const float factor = hn::GetLane(exp(hn::Set(df, old_max - new_max)));
  *running_max = new_max;
  *running_sum = *running_sum * factor + sum_lanes(sum);
  return factor;
}

// o[r] += sum over keys [begin, end) of p[r][j] * values[j], for Q rows and V vectors of o.
template <int Q, int V>
HWY_INLINE void value_tile(const float* p, const float* values, int64_t width, int64_t begin,
                           int64_t end, float* o) {
  VF acc[Q][V];
  for (int r = 0; r < Q; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = load(o + r * width + v * kLanes);
  }
  for (int64_t j = begin; j < end; ++j) {
    VF x[V];
    NIBBLE_UNROLL(4)
    for (int v = 0; v < V; ++v) x[v] = load(values + j * width + v * kLanes);
    NIBBLE_UNROLL(4)
    for (int r = 0; r < Q; ++r) {
      const VF weight = hn::Set(DF(), p[r * kKeyBlock + j]);
      NIBBLE_UNROLL(4)
      for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(weight, x[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Q; ++r) {
    for (int v = 0; v < V; ++v) store(acc[r][v], o + r * width + v * kLanes);
  }
}

template <int Q>
HWY_NOINLINE void accumulate_values(const float* p, const float* values, int64_t width,
                                    int64_t begin, int64_t end, float* o) {
  if (begin >= end) return;
  constexpr int kWide = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  int64_t d = 0;
  for (; d + kWide * kLanes <= width; d += kWide * kLanes) {
    value_tile<Q, kWide>(p, values + d, width, begin, end, o + d);
  }
  for (; d + kLanes <= width; d += kLanes) {
    value_tile<Q, 1>(p, values + d, width, begin, end, o + d);
  }
  for (; d < width; ++d) {
    for (int r = 0; r < Q; ++r) {
      VF acc = hn::Set(DF(), o[r * width + d]);
      for (int64_t j = begin; j < end; ++j) {
        acc = hn::MulAdd(hn::Set(DF(), p[r * kKeyBlock + j]), hn::Set(DF(), values[j * width + d]),
                         acc);
      }
      o[r * width + d] = hn::GetLane(acc);
    }
  }
}

// Queries of one key head: row r is token r / group, query head r % group.
struct QueryRows {
  float *q, *o, *maximum, *sum;
  int64_t count;
};

// `rows` against one block of keys, of which row r sees the first visible(r).
template <class E, class Visible>
HWY_INLINE void attend_block(const QueryRows& rows, const float* keys, const float* values,
                             float* scores, int64_t width, int64_t count, float scale,
                             Visible visible) {
  // Rows are in order of their tokens: those that see nothing of this block come first.
  int64_t r = 0;
  while (r < rows.count && visible(r) <= 0) ++r;
  for (; r < rows.count; r += 4) {
    const int64_t n = HWY_MIN(int64_t(4), rows.count - r);
    if constexpr (E::kDepth > 1) {
      score_steps<E>(rows.q + r * width, n, keys, width, scale, scores);
    } else {
      for (int64_t i = 0; i < n; i += kTileQueries) {
        score_rows(rows.q + (r + i) * width, HWY_MIN(int64_t(kTileQueries), n - i), keys, width,
                   count, scale, scores + i * kKeyBlock);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      const float factor = softmax_row(scores + i * kKeyBlock, visible(r + i), &rows.maximum[r + i],
                                       &rows.sum[r + i]);
      float* o = rows.o + (r + i) * width;
      if (factor != 1.0f) {
        const VF f = hn::Set(DF(), factor);
        map(
            o, width, [f](VF x) HWY_ATTR { return hn::Mul(x, f); }, o);
      }
    }
    // What all of them see together, then what later ones see more. A group of three or seven query
    // heads leaves less than four rows when one token is decoded.
    const int64_t shared = visible(r);
    float* const o = rows.o + r * width;
    if (n == 4) {
      accumulate_values<4>(scores, values, width, 0, shared, o);
    } else if (n == 3) {
      accumulate_values<3>(scores, values, width, 0, shared, o);
    } else if (n == 2) {
      accumulate_values<2>(scores, values, width, 0, shared, o);
    } else {
      accumulate_values<1>(scores, values, width, 0, shared, o);
    }
    for (int64_t i = 1; i < n; ++i) {
      accumulate_values<1>(scores + i * kKeyBlock, values, width, shared, visible(r + i),
                           rows.o + (r + i) * width);
    }
  }
}

template <class E>
HWY_INLINE void load_queries(const AttentionWork& a, int64_t kv_head, const QueryRows& rows) {
  const int64_t width = a.q.shape[2];
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t token = a.sequence.q_begin + a.first + r / a.group;
    const int64_t at = (kv_head * a.group + r % a.group) * width;
    if constexpr (E::kDepth > 1) {
      load_steps<E>(rows.q + r * width, row<bf16_t>(a.q, token) + at, width);
    } else {
      with_type(a.q.dtype, [&](auto* t) {
        using T = std::remove_pointer_t<decltype(t)>;
        convert(rows.q + r * width, row<T>(a.q, token) + at, width);
      });
    }
    rows.maximum[r] = -__builtin_inff();
    rows.sum[r] = 0;
  }
  std::memset(rows.o, 0, size_t(rows.count * width) * sizeof(float));
}

HWY_INLINE void store_results(const AttentionWork& a, int64_t kv_head, const QueryRows& rows) {
  const int64_t width = a.q.shape[2];
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t token = a.sequence.q_begin + a.first + r / a.group;
    const int64_t head = kv_head * a.group + r % a.group;
    const VF inverse = hn::Set(DF(), 1.0f / rows.sum[r]);
    with_type(a.out.dtype, [&](auto* t) {
      using T = std::remove_pointer_t<decltype(t)>;
      map(
          row<T>(a.out, token) + head * width, width,
          [inverse](VF x) HWY_ATTR { return hn::Mul(x, inverse); }, rows.o + r * width);
    });
    if (a.lse) a.lse[token * a.q.shape[1] + head] = std::log(rows.sum[r]) + rows.maximum[r];
  }
}

template <class E>
HWY_INLINE void attend_as(const AttentionWork& a, float* scratch) {
  const int64_t width = a.q.shape[2];
  float* q = scratch;
  float* o = q + kQueryRows * width;
  float* keys = o + kQueryRows * width;
  float* values = keys + kKeyBlock * width;
  float* scores = values + kKeyBlock * width;
  float* maximum = scores + 4 * kKeyBlock;
  float* sum = maximum + kQueryRows;
  const float scale = 1.0f / std::sqrt(float(width));
  const int64_t count = (a.last - a.first) * a.group;
  const auto rows_of = [&](int64_t i) {
    const int64_t r = i * count;
    return QueryRows{q + r * width, o + r * width, maximum + r, sum + r, count};
  };

  for (int64_t i = 0; i < a.kv_heads; ++i) load_queries<E>(a, a.kv_head + i, rows_of(i));
  // Keys that the first query of the sequence may see, and the last one here.
  const int64_t before = a.sequence.kv_len - a.sequence.q_len + 1;
  const int64_t all_keys = before + a.last - 1;
  for (int64_t j0 = 0; j0 < all_keys; j0 += kKeyBlock) {
    const int64_t block = HWY_MIN(kKeyBlock, all_keys - j0);
    const int64_t slot = a.sequence.kv_begin + j0;
    for (int64_t i = 0; i < a.kv_heads; ++i) {
      with_cache_type(a.k.dtype, [&](auto* t) {
        using T = std::remove_pointer_t<decltype(t)>;
        const int64_t head = (a.kv_head + i) * width;
        const T *k = row<T>(a.k, slot) + head, *v = row<T>(a.v, slot) + head;
        // Next come the next head's keys (or, after the last head, the next block's).
        const T* next = i + 1 < a.kv_heads ? k + width : nullptr;
        if constexpr (E::kDepth > 1) {
          if constexpr (std::is_same_v<T, bf16_t>) {
            for (int64_t j = 0; j < block; ++j) prefetch_row(v + j * a.v.row_stride, width);
            transpose_rows<E, int(kKeyBlock)>(k, a.k.row_stride, block, width, keys);
          }
        } else {
          load_rows(k, a.k.row_stride, block, width, keys, v);
        }
        load_rows(v, a.v.row_stride, block, width, values, next);
      });
      attend_block<E>(rows_of(i), keys, values, scores, width, block, scale, [&](int64_t r) {
        return HWY_MIN(block, before + a.first + r / a.group - j0);
      });
    }
  }
  for (int64_t i = 0; i < a.kv_heads; ++i) store_results(a, a.kv_head + i, rows_of(i));
}

void attend(const AttentionWork& a, float* scratch) {
  with_element(a.element, [&](auto e) { attend_as<decltype(e)>(a, scratch); });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace nibble::cpu {

HWY_EXPORT(attend);

void attention(Context& c, Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  const int64_t kv_heads = kv.k.dim(1), group = q.dim(1) / kv_heads, width = q.dim(2);
  const auto* table = reinterpret_cast<const Sequence*>(sequences.as<int32_t>());
  const int64_t tokens = std::max<int64_t>(1, kQueryRows / group);
  if (group > kQueryRows) {
    throw_internal("attention: {} query heads for one key head, at most {}", group, kQueryRows);
  }
  FloatOutput log_sums(c, lse);
  // Work of a sequence: blocks of `tokens` queries times sets of `heads` key heads.
  struct Split {
    int64_t tokens, heads, blocks, sets;
  };
  const auto split = [&](const Sequence& s) {
    const int64_t t = std::min<int64_t>(s.q_len, tokens);
    const int64_t share = (kv_heads + c.pool.size() - 1) / c.pool.size();
    const int64_t heads =
        std::clamp<int64_t>(kQueryRows / (std::max<int64_t>(t, 1) * group), 1, share);
    return Split{tokens, heads, (s.q_len + tokens - 1) / tokens, (kv_heads + heads - 1) / heads};
  };
  const bool pairs = q.dtype == DType::bf16 && kv.k.dtype == DType::bf16 && use_bf16_pairs();
  const GemmElement element = pairs ? GemmElement::bf16_pair : GemmElement::f32;
  int64_t items = 0, products = 0;
  for (int64_t s = 0; s < sequences.dim(0); ++s) {
    const Split p = split(table[s]);
    items += p.blocks * p.sets;
    products += int64_t(table[s].q_len) * table[s].kv_len;
  }
  const int64_t stride = (attention_scratch(width) + 15) / 16 * 16;
  float* scratch = c.thread_scratch.get_as<float>(size_t(stride * c.pool.size()));
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    int64_t first_item = 0;  // of the sequence at hand
    for (int64_t s = 0; s < sequences.dim(0) && first_item < end; ++s) {
      const Split p = split(table[s]);
      const int64_t count = p.blocks * p.sets;
      for (int64_t i = std::max(begin, first_item); i < std::min(end, first_item + count); ++i) {
        // Late queries see the most keys, so they go first.
        const int64_t block = p.blocks - 1 - (i - first_item) / p.sets;
        const int64_t head = (i - first_item) % p.sets * p.heads;
        const AttentionWork work{element,
                                 out,
                                 q,
                                 kv.k,
                                 kv.v,
                                 log_sums.data(),
                                 table[s],
                                 head,
                                 std::min(p.heads, kv_heads - head),
                                 group,
                                 block * p.tokens,
                                 std::min<int64_t>(table[s].q_len, (block + 1) * p.tokens)};
        HWY_DYNAMIC_DISPATCH(attend)(work, scratch + stride * thread);
      }
      first_item += count;
    }
  };
  // A few hundred keys for one token are done before a second thread is awake.
  constexpr int64_t kSmall = 1 << 17;
  c.pool.parallel_for(items, products * q.dim(1) * width < kSmall ? items : 1, body);
  log_sums.finish();
}

}  // namespace nibble::cpu
#endif
