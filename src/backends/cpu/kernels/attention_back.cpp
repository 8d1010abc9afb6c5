// SPDX-License-Identifier: MIT
// Gradient of causal grouped-query attention. Scores are computed again from q, k and the saved
// lse. A piece of work is one key head and some of the sequence's queries, which it takes in
// blocks against blocks of keys; five small matrix products each. dq is then finished; what the
// queries of a piece add to dk and dv is kept apart and summed over the pieces afterwards, in
// order. Pieces depend on the sequence's length and the number of heads only.
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/simd/target_control.h"
#include "backends/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/attention_back.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <cmath>

#include "backends/cpu/kernels/gemm_pack-inl.h"
#include "backends/cpu/simd/product-inl.h"

#ifndef NIBBLE_CPU_ATTENTION_BACK_TYPES
#define NIBBLE_CPU_ATTENTION_BACK_TYPES
namespace nibble::cpu {

constexpr int64_t kBackKeys = 64;   // keys of a block
constexpr int64_t kBackRows = 128;  // (token, head) pairs of a block
constexpr int64_t kMaxPieces = 16;

// Rows of scratch are whole vectors of any target.
constexpr int64_t padded(int64_t width) { return (width + 15) / 16 * 16; }

struct AttentionBack {
  GemmElement element;  // of the products with keys and with values, whose factors are as stored
  Tensor dq, dout, out, q, k, v;
  const float* lse;  // [N, Hq]
  int64_t group;
};

// Queries [first, last) of the sequence that begins at row `begin`, key head `head`. dk and dv are
// [last, padded(D)] each.
struct AttentionBackPiece {
  int64_t begin, head, first, last;
  float *dk, *dv;
};

// Floats of scratch per thread: q, dout, dq, and the former two in steps; keys, keys and values
// transposed; scores and their gradients; lse and delta.
constexpr int64_t attention_back_scratch(int64_t width) {
  return (5 * kBackRows + 3 * kBackKeys) * padded(width) + 2 * kBackRows * kBackKeys +
         2 * kBackRows;
}

}  // namespace nibble::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace nibble::cpu::HWY_NAMESPACE {

namespace {  // other files have rows of their own

// One row as floats, the padding zero.
template <class T>
HWY_INLINE void load_row(float* to, const T* from, int64_t width) {
  convert(to, from, width);
  for (int64_t i = width; i < padded(width); ++i) to[i] = 0;
}

template <class T>
HWY_NOINLINE float dot_row(const T* a, const T* b, int64_t n) {
  VF sum = hn::Zero(DF());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::MulAdd(load(a + i), load(b + i), sum);
  if (i < n) sum = hn::MulAdd(load_tail(a + i, n - i), load_tail(b + i, n - i), sum);
  return sum_lanes(sum);
}

// Scores and their products dp = dout . v of one row, of which the first `visible` count, become
// probabilities p and gradients of the unscaled scores.
HWY_NOINLINE void score_gradient(float* s, float* dp, int64_t visible, float scale, float lse,
                                 float delta) {
  const DF df;
  const VF vscale = hn::Set(df, scale), vlse = hn::Set(df, lse), vdelta = hn::Set(df, delta);
  for (int64_t j = 0; j < kBackKeys; j += kLanes) {
    VF p = hn::Zero(df), ds = p;
    if (j < visible) {
      p = exp(hn::MulSub(hn::Load(df, s + j), vscale, vlse));
      ds = hn::Mul(hn::Mul(p, hn::Sub(hn::Load(df, dp + j), vdelta)), vscale);
      if (visible - j < kLanes) {
        const auto real = hn::FirstN(df, size_t(visible - j));
        p = hn::IfThenElseZero(real, p);
        ds = hn::IfThenElseZero(real, ds);
      }
    }
    hn::Store(p, df, s + j);
    hn::Store(ds, df, dp + j);
  }
}

// Where the blocks of one thread lie.
struct BackScratch {
  float *q, *dout, *dq, *q_steps, *dout_steps, *keys, *keys_t, *values_t, *p, *ds, *lse, *delta;
};

// A block of queries against a block of `count` keys. Row r is token r / group, and row 0 sees the
// first `ahead` keys (perhaps 0 or less); each token sees one more.
template <class E>
HWY_NOINLINE void back_block(const BackScratch& b, int64_t rows, int64_t group, int64_t ahead,
                             int64_t d, int64_t count, float scale, float* dk, float* dv) {
  const int64_t width = padded(d), across = width / kLanes;
  const int64_t steps = (d + E::kDepth - 1) / E::kDepth;
  const auto seen = [=](int64_t r) { return HWY_MIN(count, ahead + r / group); };
  // The first row that sees key j.
  const auto first_of = [=](int64_t j) { return HWY_MAX(int64_t(0), j + 1 - ahead) * group; };
  const int64_t first = first_of(0);
  const auto scores = [&](int64_t, int64_t last) { return Needed{0, steps, seen(last)}; };
  product<E, false>(b.p, kBackKeys, first, rows, kBackKeys / kLanes, {b.q_steps, width, 1},
                    b.keys_t, kBackKeys, scores);
  product<E, false>(b.ds, kBackKeys, first, rows, kBackKeys / kLanes, {b.dout_steps, width, 1},
                    b.values_t, kBackKeys, scores);
  for (int64_t r = first; r < rows; ++r) {
    score_gradient(b.p + r * kBackKeys, b.ds + r * kBackKeys, seen(r), scale, b.lse[r], b.delta[r]);
  }
  product<Floats, true>(b.dq, width, first, rows, across, {b.ds, kBackKeys, 1}, b.keys, width,
                        [&](int64_t, int64_t last) {
                          return Needed{0, seen(last), width};
                        });
  const auto keys = [&](int64_t j, int64_t) { return Needed{first_of(j), rows, width}; };
  product<Floats, true>(dv, width, 0, count, across, {b.p, 1, kBackKeys}, b.dout, width, keys);
  product<Floats, true>(dk, width, 0, count, across, {b.ds, 1, kBackKeys}, b.q, width, keys);
}

template <class E, class T>
HWY_NOINLINE void back_piece_as(const AttentionBack& a, const AttentionBackPiece& piece,
                                const BackScratch& b) {
  const int64_t d = a.q.shape[2], heads = a.q.shape[1], width = padded(d), group = a.group;
  const float scale = 1.0f / std::sqrt(float(d));
  std::memset(piece.dk, 0, size_t(piece.last * width) * sizeof(float));
  std::memset(piece.dv, 0, size_t(piece.last * width) * sizeof(float));
  const int64_t tokens = kBackRows / group;
  for (int64_t t0 = piece.first; t0 < piece.last; t0 += tokens) {
    const int64_t t1 = HWY_MIN(piece.last, t0 + tokens), rows = (t1 - t0) * group;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = piece.begin + t0 + r / group;
      const int64_t head = piece.head * group + r % group;
      const T* dout = row<T>(a.dout, token) + head * d;
      const T* q = row<T>(a.q, token) + head * d;
      load_row(b.q + r * width, q, d);
      load_row(b.dout + r * width, dout, d);
      if constexpr (E::kDepth > 1) {
        load_steps<E>(b.q_steps + r * width, q, d);
        load_steps<E>(b.dout_steps + r * width, dout, d);
      }
      b.lse[r] = a.lse[token * heads + head];
      b.delta[r] = dot_row(dout, row<T>(a.out, token) + head * d, d);
    }
    std::memset(b.dq, 0, size_t(rows * width) * sizeof(float));
    for (int64_t j0 = 0; j0 < t1; j0 += kBackKeys) {
      const int64_t count = HWY_MIN(kBackKeys, t1 - j0);
      const T* k = row<T>(a.k, piece.begin + j0) + piece.head * d;
      const T* v = row<T>(a.v, piece.begin + j0) + piece.head * d;
      transpose_rows<E, int(kBackKeys)>(v, a.v.row_stride, count, d, b.values_t);
      transpose_rows<E, int(kBackKeys)>(k, a.k.row_stride, count, d, b.keys_t);
      for (int64_t j = 0; j < count; ++j) {
        load_row(b.keys + j * width, k + j * a.k.row_stride, d);
      }
      back_block<E>(b, rows, group, t0 + 1 - j0, d, count, scale, piece.dk + j0 * width,
                    piece.dv + j0 * width);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = piece.begin + t0 + r / group;
      convert(row<T>(a.dq, token) + (piece.head * group + r % group) * d, b.dq + r * width, d);
    }
  }
}

}  // namespace

void back_piece(const AttentionBack& a, const AttentionBackPiece& piece, float* scratch) {
  const int64_t width = padded(a.q.shape[2]);
  BackScratch b;
  const auto take = [&](int64_t n) {
    float* p = scratch;
    scratch += n;
    return p;
  };
  b.q = take(kBackRows * width), b.dout = take(kBackRows * width), b.dq = take(kBackRows * width);
  b.q_steps = b.q, b.dout_steps = b.dout;
  if (a.element != GemmElement::f32) {
    b.q_steps = take(kBackRows * width), b.dout_steps = take(kBackRows * width);
  }
  b.keys = take(kBackKeys * width);
  b.keys_t = take(kBackKeys * width), b.values_t = take(kBackKeys * width);
  b.p = take(kBackRows * kBackKeys), b.ds = take(kBackRows * kBackKeys);
  b.lse = take(kBackRows), b.delta = take(kBackRows);
  with_element(a.element, [&](auto e) {
    using E = decltype(e);
    if constexpr (E::kDepth == 1) {
      with_type(a.q.dtype, [&](auto* t) {
        back_piece_as<E, std::remove_pointer_t<decltype(t)>>(a, piece, b);
      });
    } else {
      back_piece_as<E, bf16_t>(a, piece, b);
    }
  });
}

// Row `token` of dk or dv, key head `head`: the sum of `count` rows of floats, which are added to
// the first of them.
void finish_key_row(const Tensor& out, int64_t token, int64_t head, float* const* rows,
                    int64_t count) {
  const int64_t d = out.shape[2];
  for (int64_t i = 1; i < count; ++i) {
    map(
        rows[0], d, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); }, rows[0], rows[i]);
  }
  with_type(out.dtype, [&](auto* t) {
    convert(row<std::remove_pointer_t<decltype(t)>>(out, token) + head * d, rows[0], d);
  });
}

}  // namespace nibble::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>

namespace nibble::cpu {

HWY_EXPORT(back_piece);
HWY_EXPORT(finish_key_row);

namespace {

// How a sequence's queries are divided: `count` pieces [ends[i - 1], ends[i]) of about equal work,
// which is what a query costs in keys. With eight key heads two pieces are enough for 16 threads.
struct Pieces {
  int64_t count = 0, keys = 0;  // keys: of all pieces together
  std::array<int64_t, kMaxPieces> ends{};

  static int64_t wanted_for(int64_t kv_heads) {
    return std::clamp<int64_t>(kMaxPieces / kv_heads, 1, kMaxPieces);
  }
  // No less than `keys` of any division of so many tokens into sequences: scratch of this size
  // never grows while the batch keeps its size. (The shares sqrt(i / n) add up to 2n/3 + 1/2.)
  static int64_t most_keys(int64_t tokens, int64_t kv_heads) {
    return tokens * (2 * wanted_for(kv_heads) + 3) / 3 + 1;
  }

  Pieces(int64_t length, int64_t kv_heads, int64_t group) {
    const int64_t tokens = kBackRows / group;  // of a block
    const int64_t wanted = wanted_for(kv_heads);
    for (int64_t i = 0, before = 0; i < wanted; ++i) {
      const double share = std::sqrt(double(i + 1) / double(wanted));
      const int64_t blocks = int64_t(std::ceil(share * double(length) / double(tokens)));
      const int64_t end = i + 1 == wanted ? length : std::min(length, blocks * tokens);
      if (end > before) ends[size_t(count++)] = before = end, keys += end;
    }
  }
  int64_t first(int64_t i) const { return i == 0 ? 0 : ends[size_t(i - 1)]; }
  // Keys of the pieces before piece i: where its rows of a partial sum begin.
  int64_t offset(int64_t i) const {
    int64_t sum = 0;
    for (int64_t k = 0; k < i; ++k) sum += ends[size_t(k)];
    return sum;
  }
};

}  // namespace

void attention_back(Context& c, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                    Tensor lse, Tensor q, KvView kv, Tensor sequences) {
  const int64_t kv_heads = kv.k.dim(1), group = q.dim(1) / kv_heads, width = padded(q.dim(2));
  if (group > kBackRows) {
    throw_internal("attention_back: {} query heads for one key head, at most {}", group, kBackRows);
  }
  const auto* table = reinterpret_cast<const Sequence*>(sequences.as<int32_t>());
  const FloatInput log_sums(c, lse);
  int64_t items = 0, keys = 0, products = 0, longest = 0;
  for (int64_t s = 0; s < sequences.dim(0); ++s) {
    const Pieces p(table[s].q_len, kv_heads, group);
    items += p.count * kv_heads;
    keys += p.keys;
    products += int64_t(table[s].q_len) * table[s].q_len / 2;
    longest = std::max<int64_t>(longest, table[s].q_len);
  }
  const int64_t stride = padded(attention_back_scratch(q.dim(2)));
  float* scratch = c.thread_scratch.get_as<float>(size_t(stride * c.pool.size()));
  const int64_t rows = std::max(keys, Pieces::most_keys(q.dim(0), kv_heads));
  float* partial = c.gradients.get_as<float>(size_t(2 * rows * kv_heads * width));
  const bool pairs = q.dtype == DType::bf16 && use_bf16_pairs();
  const AttentionBack a{pairs ? GemmElement::bf16_pair : GemmElement::f32,
                        dq,
                        dout,
                        out,
                        q,
                        kv.k,
                        kv.v,
                        log_sums.data(),
                        group};

  // Piece i of head h of a sequence whose partial sums begin at row `at`: dk, then dv.
  const auto rows_of = [&](const Pieces& p, int64_t at, int64_t h, int64_t i) {
    return partial + 2 * ((at * kv_heads) + h * p.keys + p.offset(i)) * width;
  };
  const auto work = [&](int64_t begin, int64_t end, int thread) {
    for (int64_t s = 0, first = 0, at = 0; s < sequences.dim(0) && first < end; ++s) {
      const Pieces p(table[s].q_len, kv_heads, group);
      const int64_t n = p.count * kv_heads;
      for (int64_t k = std::max(begin, first); k < std::min(end, first + n); ++k) {
        const int64_t i = (k - first) / kv_heads, h = (k - first) % kv_heads;
        float* to = rows_of(p, at, h, i);
        const int64_t last = p.ends[size_t(i)];
        HWY_DYNAMIC_DISPATCH(back_piece)
        (a, {table[s].q_begin, h, p.first(i), last, to, to + last * width},
         scratch + stride * thread);
      }
      first += n;
      at += p.keys;
    }
  };
  constexpr int64_t kSmall = 1 << 15;  // products, below which a second thread is not worth waking
  const bool small = products * q.dim(1) * q.dim(2) < kSmall;
  c.pool.parallel_for(items, small ? items : 1, work);

  const auto finish = [&](int64_t begin, int64_t end, int) {
    for (int64_t s = 0, at = 0; s < sequences.dim(0); ++s) {
      const Pieces p(table[s].q_len, kv_heads, group);
      for (int64_t j = begin; j < std::min<int64_t>(end, table[s].q_len); ++j) {
        for (int64_t h = 0; h < kv_heads; ++h) {
          std::array<float*, kMaxPieces> k_rows{}, v_rows{};
          int64_t n = 0;
          for (int64_t i = 0; i < p.count; ++i) {
            if (p.ends[size_t(i)] <= j) continue;
            k_rows[size_t(n)] = rows_of(p, at, h, i) + j * width;
            v_rows[size_t(n)] = k_rows[size_t(n)] + p.ends[size_t(i)] * width;
            ++n;
          }
          HWY_DYNAMIC_DISPATCH(finish_key_row)(dk, table[s].q_begin + j, h, k_rows.data(), n);
          HWY_DYNAMIC_DISPATCH(finish_key_row)(dv, table[s].q_begin + j, h, v_rows.data(), n);
        }
      }
      at += p.keys;
    }
  };
  c.pool.parallel_for(longest, small ? longest : 16, finish);
}

}  // namespace nibble::cpu
#endif
