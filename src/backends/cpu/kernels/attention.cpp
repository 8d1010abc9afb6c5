// SPDX-License-Identifier: MIT
// Causal grouped-query attention. Keys are taken in blocks of 64 counted from the sequence's first
// slot, with a running maximum and sum; all arithmetic of one query is its own, so how queries are
// grouped for speed does not show in the result.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/simd/vec-inl.h"

#ifndef NIBBLE_CPU_ATTENTION_TYPES
#define NIBBLE_CPU_ATTENTION_TYPES
namespace nibble::cpu {

constexpr int64_t kKeyBlock = 64;
constexpr int64_t kQueryRows = 32;  // (token, head) pairs that share a block of keys

// Queries [first, last) of a sequence, all query heads of one key head.
struct AttentionWork {
  Tensor out, q, k, v;
  float* lse;  // [N, Hq] or null
  Sequence sequence;
  int64_t kv_head, group, first, last;
};

// Floats of scratch per thread: q, o, keys (transposed), values, scores, and per row max and sum.
constexpr int64_t attention_scratch(int64_t width) {
  return 2 * kQueryRows * width + 2 * kKeyBlock * width + kQueryRows * kKeyBlock + 2 * kQueryRows;
}

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

constexpr int kKeyVectors = int(kKeyBlock) / kLanes;

// keys[d][j] = k[j][d] for `count` keys of one head; columns beyond keep what they held.
template <class T>
HWY_NOINLINE void transpose_keys(const T* k, int64_t stride, int64_t count, int64_t width,
                                 float* keys) {
  const hn::FixedTag<float, 4> d4;
  int64_t j = 0;
  alignas(64) float rows[4][4 * kLanes];
  for (; j + 4 <= count; j += 4) {
    int64_t d = 0;
    for (; d + 4 * kLanes <= width || d + 4 <= width;) {
      const int64_t n = HWY_MIN(int64_t(4 * kLanes), (width - d) / 4 * 4);
      for (int64_t r = 0; r < 4; ++r) convert(rows[r], k + (j + r) * stride + d, n);
      for (int64_t i = 0; i < n; i += 4) {
        const auto a = hn::Load(d4, rows[0] + i), b = hn::Load(d4, rows[1] + i);
        const auto c = hn::Load(d4, rows[2] + i), e = hn::Load(d4, rows[3] + i);
        const auto ac0 = hn::InterleaveLower(d4, a, c), ac1 = hn::InterleaveUpper(d4, a, c);
        const auto be0 = hn::InterleaveLower(d4, b, e), be1 = hn::InterleaveUpper(d4, b, e);
        float* to = keys + (d + i) * kKeyBlock + j;
        hn::StoreU(hn::InterleaveLower(d4, ac0, be0), d4, to);
        hn::StoreU(hn::InterleaveUpper(d4, ac0, be0), d4, to + kKeyBlock);
        hn::StoreU(hn::InterleaveLower(d4, ac1, be1), d4, to + 2 * kKeyBlock);
        hn::StoreU(hn::InterleaveUpper(d4, ac1, be1), d4, to + 3 * kKeyBlock);
      }
      d += n;
    }
    for (; d < width; ++d) {
      for (int64_t r = 0; r < 4; ++r)
        convert(keys + d * kKeyBlock + j + r, k + (j + r) * stride + d, 1);
    }
  }
  for (; j < count; ++j) {
    for (int64_t d = 0; d < width; ++d) convert(keys + d * kKeyBlock + j, k + j * stride + d, 1);
  }
}

// scores[r][j] = scale * q[r] . key j for Q rows and V vectors of keys from key j0 on.
template <int Q, int V>
HWY_INLINE void score_tile(const float* q, const float* keys, int64_t width, VF scale,
                           float* scores) {
  VF acc[Q][V];
  for (int r = 0; r < Q; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = hn::Zero(DF());
  }
  for (int64_t d = 0; d < width; ++d) {
    VF kv[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) kv[v] = hn::Load(DF(), keys + d * kKeyBlock + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < Q; ++r) {
      const VF x = hn::Set(DF(), q[r * width + d]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(x, kv[v], acc[r][v]);
    }
  }
  for (int r = 0; r < Q; ++r) {
    for (int v = 0; v < V; ++v) {
      hn::Store(hn::Mul(acc[r][v], scale), DF(), scores + r * kKeyBlock + v * kLanes);
    }
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
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) x[v] = load(values + j * width + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < Q; ++r) {
      const VF weight = hn::Set(DF(), p[r * kKeyBlock + j]);
#pragma GCC unroll 4
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

template <int Q>
HWY_NOINLINE void score_rows(const float* q, const float* keys, int64_t width, int64_t count,
                             VF scale, float* scores) {
  constexpr int kWide = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  for (int64_t j = 0; j < count; j += kWide * kLanes) {
    score_tile<Q, kWide>(q, keys + j, width, scale, scores + j);
  }
}

void attend(const AttentionWork& a, float* scratch) {
  const int64_t width = a.q.shape[2], heads = a.group;
  const int64_t rows = (a.last - a.first) * heads;
  float* q = scratch;
  float* o = q + kQueryRows * width;
  float* keys = o + kQueryRows * width;
  float* values = keys + kKeyBlock * width;
  float* scores = values + kKeyBlock * width;
  float* maximum = scores + kQueryRows * kKeyBlock;
  float* sum = maximum + kQueryRows;
  const VF scale = hn::Set(DF(), 1.0f / std::sqrt(float(width)));

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = a.sequence.q_begin + a.first + r / heads;
    with_type(a.q.dtype, [&](auto* t) {
      using T = std::remove_pointer_t<decltype(t)>;
      convert(q + r * width, row<T>(a.q, token) + (a.kv_head * heads + r % heads) * width, width);
    });
    maximum[r] = -__builtin_inff();
    sum[r] = 0;
  }
  std::memset(o, 0, size_t(rows * width) * sizeof(float));

  // Keys that query i of the sequence may see.
  const int64_t before = a.sequence.kv_len - a.sequence.q_len + 1;
  const int64_t all_keys = before + a.last - 1;
  for (int64_t j0 = 0; j0 < all_keys; j0 += kKeyBlock) {
    const int64_t count = HWY_MIN(kKeyBlock, all_keys - j0);
    const int64_t slot = a.sequence.kv_begin + j0;
    with_type(a.k.dtype, [&](auto* t) {
      using T = std::remove_pointer_t<decltype(t)>;
      transpose_keys(row<T>(a.k, slot) + a.kv_head * width, a.k.row_stride, count, width, keys);
      for (int64_t j = 0; j < count; ++j) {
        convert(values + j * width, row<T>(a.v, slot + j) + a.kv_head * width, width);
      }
    });
    const auto visible = [&](int64_t r) {
      return HWY_MIN(count, before + a.first + r / heads - j0);
    };
    // Rows are in order of their tokens: those that see nothing of this block come first.
    int64_t r = 0;
    while (r < rows && visible(r) <= 0) ++r;
    for (; r < rows; r += 4) {
      const int64_t n = HWY_MIN(int64_t(4), rows - r);
      float* s = scores + r * kKeyBlock;
      if (n == 4) {
        score_rows<4>(q + r * width, keys, width, count, scale, s);
      } else {
        for (int64_t i = 0; i < n; ++i) {
          score_rows<1>(q + (r + i) * width, keys, width, count, scale, s + i * kKeyBlock);
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        const float factor =
            softmax_row(s + i * kKeyBlock, visible(r + i), &maximum[r + i], &sum[r + i]);
        float* oi = o + (r + i) * width;
        if (factor != 1.0f) {
          const VF f = hn::Set(DF(), factor);
          map(
              oi, width, [f](VF x) HWY_ATTR { return hn::Mul(x, f); }, oi);
        }
      }
      const int64_t shared = n == 4 ? visible(r) : 0;
      accumulate_values<4>(s, values, width, 0, shared, o + r * width);
      for (int64_t i = 0; i < n; ++i) {
        accumulate_values<1>(s + i * kKeyBlock, values, width, shared, visible(r + i),
                             o + (r + i) * width);
      }
    }
  }

  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = a.sequence.q_begin + a.first + r / heads;
    const int64_t head = a.kv_head * heads + r % heads;
    const VF inverse = hn::Set(DF(), 1.0f / sum[r]);
    with_type(a.out.dtype, [&](auto* t) {
      using T = std::remove_pointer_t<decltype(t)>;
      map(
          row<T>(a.out, token) + head * width, width,
          [inverse](VF x) HWY_ATTR { return hn::Mul(x, inverse); }, o + r * width);
    });
    if (a.lse) a.lse[token * a.q.shape[1] + head] = std::log(sum[r]) + maximum[r];
  }
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
  int64_t items = 0, products = 0;
  for (int64_t s = 0; s < sequences.dim(0); ++s) {
    items += (table[s].q_len + tokens - 1) / tokens * kv_heads;
    products += int64_t(table[s].q_len) * table[s].kv_len;
  }
  const int64_t stride = (attention_scratch(width) + 15) / 16 * 16;
  float* scratch = c.thread_scratch.get_as<float>(size_t(stride * c.pool.size()));
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    int64_t first_item = 0;  // of the sequence at hand
    for (int64_t s = 0; s < sequences.dim(0) && first_item < end; ++s) {
      const int64_t count = (table[s].q_len + tokens - 1) / tokens * kv_heads;
      for (int64_t i = std::max(begin, first_item); i < std::min(end, first_item + count); ++i) {
        // Late queries see the most keys, so they go first.
        const int64_t block = (count - 1 - (i - first_item)) / kv_heads;
        const AttentionWork work{out,
                                 q,
                                 kv.k,
                                 kv.v,
                                 log_sums.data(),
                                 table[s],
                                 (i - first_item) % kv_heads,
                                 group,
                                 block * tokens,
                                 std::min<int64_t>(table[s].q_len, (block + 1) * tokens)};
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
