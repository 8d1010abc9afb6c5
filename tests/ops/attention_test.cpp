// SPDX-License-Identifier: MIT
// Attention against the reference: head ratios, widths, chunks on a cache, packed sequences,
// cache types.
#include <algorithm>

#include "ops/op_support.h"

namespace nibble::test {
namespace {

struct Case {
  int64_t hq, hkv, d;
  std::vector<Sequence> sequences;
};

double largest_row_norm(const Operand& o, int64_t width) {
  const auto v = o.ref_values();
  double largest = 0;
  for (size_t i = 0; i < v.size(); i += size_t(width)) {
    double sum = 0;
    for (size_t j = i; j < i + size_t(width); ++j) sum += v[j] * v[j];
    largest = std::max(largest, std::sqrt(sum));
  }
  return largest;
}
double largest(const Operand& o) {
  double m = 0;
  for (double v : o.ref_values()) m = std::max(m, std::abs(v));
  return m;
}

// Backends have kernels of their own for rows that begin at multiples of 16 bytes. They may round
// the weights to the activations' type.
enum class Rows { unaligned, aligned };

void check(Both& b, const Case& c, DType act, DType cache, bool with_lse,
           Rows rows = Rows::unaligned) {
  int64_t tokens = 0, slots = 0, keys = 0;
  for (const Sequence& s : c.sequences) {
    tokens = std::max<int64_t>(tokens, s.q_begin + s.q_len);
    slots = std::max<int64_t>(slots, s.kv_begin + s.kv_len);
    keys = std::max<int64_t>(keys, s.kv_len);
  }
  const bool aligned = rows == Rows::aligned;
  Operand q(act, {tokens, c.hq, c.d}, 8), out(act, {tokens, c.hq, c.d}, aligned ? 16 : 3);
  Operand k(cache, {slots, c.hkv, c.d}, aligned ? 8 : 5);
  Operand v(cache, {slots, c.hkv, c.d}, aligned ? 16 : 5);
  Operand lse(DType::f32, {tokens, c.hq}), table(DType::i32, {int64_t(c.sequences.size()), 4});
  q.normal(1, 2.0), k.normal(2), v.normal(3);
  table.fill([&](int64_t i) {
    const Sequence& s = c.sequences[size_t(i / 4)];
    return double(std::array{s.q_begin, s.q_len, s.kv_begin, s.kv_len}[size_t(i % 4)]);
  });
  b.cpu->attention(out.cpu, with_lse ? lse.cpu : Tensor{}, q.cpu, {k.cpu, v.cpu}, table.cpu);
  b.reference().attention(out.ref, with_lse ? lse.ref : Tensor{}, q.ref, {k.ref, v.ref}, table.ref);

  // A score is a dot product of depth d with three more roundings; a weight inherits its absolute
  // error, plus exp and its argument (scores stay below |q| |k| / sqrt d); sums over the keys,
  // once above and once below the fraction.
  const double qk = largest_row_norm(q, c.d) * largest_row_norm(k, c.d) / std::sqrt(double(c.d));
  const double score = double(c.d + 3) * kRoundoff * qk;
  const double relative = 2 * (score + 2 * qk * kRoundoff + double(keys + 16) * kRoundoff);
  // The largest weight is 1 before the sums are divided; small ones may be subnormal in f16.
  const double rounded = aligned ? storage_roundoff(act) + double(keys) * storage_floor(act) : 0;
  const double bound = (relative + rounded) * largest(v);
  expect_close(
      out, [&](int64_t) { return bound; }, "attention");
  if (with_lse)
    expect_close(
        lse, [&](int64_t) { return relative + 10 * kRoundoff; }, "lse");
}

const std::vector<Case> kCases = {
    {1, 1, 16, {{0, 1, 0, 1}}},                                     // one token, empty cache
    {4, 4, 32, {{0, 1, 3, 130}}},                                   // decode, ratio 1
    {4, 2, 64, {{0, 67, 0, 67}}},                                   // prefill, ratio 2
    {8, 2, 128, {{0, 5, 7, 200}}},                                  // a chunk on a cache, ratio 4
    {6, 2, 16, {{0, 3, 0, 64}, {3, 1, 64, 65}, {4, 66, 129, 70}}},  // mixed batch, ratio 3
    {3, 1, 20, {{0, 2, 1, 9}}},                                     // a width no vector divides
    {16, 1, 8, {{0, 9, 0, 9}}},                                     // many heads on one
};

TEST(Attention, MatchesTheReference) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Case& c : kCases) {
      check(b, c, act, act, true);
      check(b, c, act, act, false);
    }
  });
}

TEST(Attention, CacheTypeIsIndependentOfTheActivations) {
  Both b;
  on_every_target([&] {
    for (DType act : kActTypes) {
      for (DType cache : kActTypes) check(b, kCases[3], act, cache, true);
      for (const Case& c : kCases) check(b, c, act, DType::f8_e4m3, true);
    }
  });
}

const std::vector<Case> kAlignedCases = {
    {8, 2, 128, {{0, 1, 0, 1}}},
    {8, 2, 128, {{0, 1, 16, 1000}}},                                 // decode
    {8, 1, 64, {{0, 1, 3, 77}}},                                     // ratio 8
    {6, 2, 128, {{0, 3, 0, 64}, {3, 1, 64, 65}, {4, 4, 129, 70}}},   // short chunks, ratio 3
    {4, 4, 64, {{0, 1, 0, 300}, {1, 1, 300, 17}, {2, 1, 317, 64}}},  // several sequences
    {16, 1, 128, {{0, 2, 0, 33}}},                                   // many heads on one
    {2, 1, 128, {{0, 300, 0, 300}}},                                 // prefill
    {4, 1, 64, {{0, 130, 5, 230}}},                                  // a chunk on a cache
    {2, 1, 128, {{0, 20, 0, 64}, {20, 1, 64, 65}, {21, 200, 129, 200}, {221, 128, 400, 128}}},
    {2, 2, 64, {{0, 9, 3, 40}, {9, 129, 43, 129}, {138, 65, 172, 65}}},
    {4,
     1,
     128,
     {{0, 300, 5, 900}, {300, 1, 905, 400}, {301, 65, 1305, 700}}},  // many tiles of keys
    // Head counts of real models: ratios 7, 3 and 6, and 5; decode, a prompt, chunks on a cache.
    {14, 2, 64, {{0, 1, 3, 300}}},
    {14, 2, 64, {{0, 300, 0, 300}}},
    {9, 3, 64, {{0, 1, 0, 1000}, {1, 1, 1000, 65}}},
    {9, 3, 64, {{0, 65, 7, 500}, {65, 200, 507, 200}, {265, 1, 707, 128}}},
    {12, 2, 128, {{0, 1, 5, 200}}},
    {12, 2, 128, {{0, 129, 0, 129}}},
    {5, 1, 64, {{0, 7, 2, 90}}},
    {4, 1, 64, {{0, 300, 5, 900}, {300, 1, 905, 400}, {301, 65, 1305, 700}}},
};

// Enough of them that a GPU is busy.
std::vector<Case> many_sequences() {
  std::vector<Case> cases;
  for (const auto& [hq, hkv, width] :
       {std::array<int64_t, 3>{32, 8, 64}, {32, 8, 128}, {14, 2, 64}, {9, 3, 64}, {12, 2, 128}}) {
    Case c{hq, hkv, width, {}};
    for (int32_t n : {5, 130, 1, 64, 63, 20, 9, 33}) {
      const Sequence last = c.sequences.empty() ? Sequence{} : c.sequences.back();
      c.sequences.push_back(
          {last.q_begin + last.q_len, n, last.kv_begin + last.kv_len + 1, n + (n % 2 ? 50 : 0)});
    }
    cases.push_back(c);
  }
  return cases;
}

TEST(Attention, ManyAlignedSequences) {
  Both b;
  for (const Case& c : many_sequences()) {
    for (DType act : {DType::bf16, DType::f16}) check(b, c, act, act, true, Rows::aligned);
  }
}

// One or few queries each of so many sequences that a GPU need not split their keys.
TEST(Attention, FewQueriesOfManySequences) {
  Both b;
  for (int64_t width : {64, 128}) {
    for (int64_t group : {1, 3, 4, 7, 8}) {
      SCOPED_TRACE(::testing::Message() << group << " heads of " << width << " a key head");
      Case c{8 * group, 8, width, {}};
      for (int32_t i = 0; i < 24; ++i) {
        const Sequence last = c.sequences.empty() ? Sequence{} : c.sequences.back();
        const int32_t queries = i % 5 == 4 ? 3 : 1,
                      keys = queries + (i == 7 ? 470 : i * i * 7 % 150);
        c.sequences.push_back(
            {last.q_begin + last.q_len, queries, last.kv_begin + last.kv_len + i % 3, keys});
      }
      for (DType act : {DType::bf16, DType::f16}) check(b, c, act, act, true, Rows::aligned);
    }
  }
}

TEST(Attention, AlignedRows) {
  Both b;
  for (DType act : kActTypes) {
    for (const Case& c : kAlignedCases) {
      SCOPED_TRACE(std::string(dtype_name(act)) + " " + std::to_string(c.hq) + "/" +
                   std::to_string(c.hkv) + " x " + std::to_string(c.d) + ", " +
                   std::to_string(c.sequences[0].q_len));
      check(b, c, act, act, true, Rows::aligned);
      if (act != DType::f32) check(b, c, act, DType::f8_e4m3, true, Rows::aligned);
    }
  }
}

// More tiles of queries than a GPU takes at once, with more tiles of keys than it keeps: what was
// left by one is not seen by the next.
TEST(Attention, TilesThatFollowEachOther) {
  Both b;
  for (const auto& [hq, width] : {std::array<int64_t, 2>{32, 128}, {28, 64}}) {
    const Case c{hq, 4, width, {{0, 260, 3, 520}, {260, 129, 530, 300}}};
    check(b, c, DType::bf16, DType::bf16, true, Rows::aligned);
  }
}

TEST(Attention, LongContext) {
  Both b;
  check(b, {4, 2, 64, {{0, 2, 0, 5000}}}, DType::f32, DType::bf16, true);
  check(b, {2, 1, 128, {{0, 1, 0, 3000}, {1, 2, 3000, 9}}}, DType::bf16, DType::bf16, true,
        Rows::aligned);
  for (const DType cache : {DType::bf16, DType::f8_e4m3}) {
    check(b, {7, 1, 64, {{0, 1, 0, 5000}, {1, 2, 5000, 9}}}, DType::bf16, cache, true,
          Rows::aligned);
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Both b;
  on_every_target([&] {
    Operand q(DType::f32, {1, 1, 16}), k(DType::f32, {3, 1, 16}), v(DType::f32, {3, 1, 16});
    Operand out(DType::f32, {1, 1, 16}), table(DType::i32, {1, 4});
    q.fill([](int64_t) { return 1000.0; });
    k.fill([](int64_t i) { return i < 16 ? -1000.0 : i < 32 ? 1000.0 : 999.0; });
    v.normal(4);
    table.fill([](int64_t i) { return std::array{0.0, 1.0, 0.0, 3.0}[size_t(i)]; });
    b.cpu->attention(out.cpu, {}, q.cpu, {k.cpu, v.cpu}, table.cpu);
    b.reference().attention(out.ref, {}, q.ref, {k.ref, v.ref}, table.ref);
    expect_relative(out, 0, "attention");
  });
}

// A query never looks at a key it may not see, not even to multiply it by zero.
TEST(Attention, FutureKeysMayBeAnything) {
  Both b;
  on_every_target([&] {
    Operand q(DType::f32, {4, 2, 32}), k(DType::f32, {4, 1, 32}), v(DType::f32, {4, 1, 32});
    Operand out(DType::f32, {4, 2, 32}), table(DType::i32, {1, 4});
    q.normal(1), k.normal(2), v.normal(3);
    for (int64_t i = 0; i < 32; ++i) {
      k.cpu.row<float>(3)[i] = NAN;
      v.cpu.row<float>(3)[i] = NAN;
    }
    table.fill([](int64_t i) { return i % 2 ? 4.0 : 0.0; });
    b.cpu->attention(out.cpu, {}, q.cpu, {k.cpu, v.cpu}, table.cpu);
    for (int64_t n = 0; n < 4; ++n) {
      for (int64_t i = 0; i < 64; ++i) {
        EXPECT_EQ(std::isnan(out.cpu.row<float>(n)[i]), n == 3) << n << " " << i;
      }
    }
  });
}

// Fused with split_heads it has the bits of the two ops: one new token each of few and of many
// sequences, more tokens than sequences, and training, which keeps q and k; heads with norms, with
// biases, with neither.
TEST(Attention, WithHeadsHasTheBitsOfTheTwoOps) {
  Both b;
  enum class Has { norms, biases, nothing };
  struct Shape {
    int64_t sequences, tokens_each, hq, hkv, d, past;
    Has has = Has::norms;
  };
  on_every_target_and_type([&](DType act) {
    for (const Shape& s :
         {Shape{1, 1, 4, 2, 128, 9}, Shape{40, 1, 16, 8, 128, 70}, Shape{33, 1, 32, 4, 128, 0},
          Shape{20, 3, 16, 8, 128, 5}, Shape{3, 1, 4, 2, 32, 17}, Shape{40, 1, 16, 8, 64, 70},
          Shape{70, 1, 14, 2, 64, 30, Has::biases}, Shape{70, 1, 12, 2, 128, 65, Has::biases},
          Shape{35, 1, 32, 4, 128, 0, Has::biases}, Shape{50, 1, 9, 3, 64, 33, Has::nothing},
          Shape{2, 1, 14, 2, 64, 9, Has::biases}, Shape{1, 1, 9, 3, 64, 0, Has::nothing}}) {
      for (const bool training : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << s.sequences << " sequences, " << s.hq << "/" << s.hkv << " heads of " << s.d
                     << ", has " << int(s.has) << ", " << training);
        const int64_t n = s.sequences * s.tokens_each, kv_len = s.past + s.tokens_each;
        if (training && s.past > 0) continue;
        Operand norm_q(DType::f32, {s.d}), norm_k(DType::f32, {s.d});
        Operand table(DType::f32, {n, s.d}), positions(DType::i32, {n}), slots(DType::i32, {n});
        Operand sequences(DType::i32, {s.sequences, 4});
        Operand bias(DType::f32, {(s.hq + 2 * s.hkv) * s.d});
        norm_q.normal(2), norm_k.normal(3), bias.normal(4, 20.0);
        positions.fill([&](int64_t i) { return double(s.past + i % s.tokens_each); });
        slots.fill([&](int64_t i) {
          return double(i / s.tokens_each * kv_len + s.past + i % s.tokens_each);
        });
        sequences.fill([&](int64_t i) {
          const int64_t q = i / 4;
          return double(
              std::array{q * s.tokens_each, s.tokens_each, q * kv_len, kv_len}[size_t(i % 4)]);
        });
        b.cpu->rope_table(table.cpu, positions.cpu, turns_of(1e4, table.cpu));
        struct Results {
          Operand qkv, q, k, q_rstd, k_rstd, cache_k, cache_v, out, lse;
        } fused, plain;
        for (Results* r : {&fused, &plain}) {
          r->qkv = Operand(act, {n, (s.hq + 2 * s.hkv) * s.d});
          r->qkv.normal(1, 3.0);
          r->q = Operand(act, {n, s.hq, s.d}), r->k = Operand(act, {n, s.hkv, s.d});
          r->q_rstd = Operand(DType::f32, {n * s.hq}), r->k_rstd = Operand(DType::f32, {n * s.hkv});
          r->cache_k = Operand(act, {s.sequences * kv_len, s.hkv, s.d}, 16);
          r->cache_v = Operand(act, {s.sequences * kv_len, s.hkv, s.d}, 16);
          r->out = Operand(act, {n, s.hq, s.d}), r->lse = Operand(DType::f32, {n, s.hq});
          r->cache_k.normal(5), r->cache_v.normal(6);
        }
        const auto heads = [&](Results& r) {
          return training && s.has == Has::norms
                     ? HeadSlots{r.q.cpu, r.q_rstd.cpu, r.k.cpu, r.k_rstd.cpu}
                     : HeadSlots{r.q.cpu, {}, r.k.cpu, {}};
        };
        const auto kv = [&](Results& r) {
          const Tensor v = r.qkv.cpu.columns((s.hq + s.hkv) * s.d, s.hkv * s.d);
          return training ? KvView{r.k.cpu, v.split_inner({n, s.hkv, s.d})}
                          : KvView{r.cache_k.cpu, r.cache_v.cpu};
        };
        HeadParams params;
        if (s.has == Has::norms) params.q_norm = norm_q.cpu, params.k_norm = norm_k.cpu;
        if (s.has == Has::biases) params.bias = bias.cpu, params.still = {s.d / 4, 1.25f};
        b.cpu->split_heads_attention(fused.out.cpu, training ? fused.lse.cpu : Tensor{},
                                     heads(fused), kv(fused), fused.qkv.cpu, params, table.cpu,
                                     slots.cpu, sequences.cpu, 1e-6);
        b.cpu->split_heads(heads(plain), kv(plain), plain.qkv.cpu, params, table.cpu, slots.cpu,
                           1e-6);
        b.cpu->attention(plain.out.cpu, training ? plain.lse.cpu : Tensor{}, plain.q.cpu, kv(plain),
                         sequences.cpu);
        EXPECT_EQ(fused.out.bytes(), plain.out.bytes());
        EXPECT_EQ(fused.cache_k.bytes(), plain.cache_k.bytes());
        EXPECT_EQ(fused.cache_v.bytes(), plain.cache_v.bytes());
        if (!training) continue;
        EXPECT_EQ(fused.q.bytes(), plain.q.bytes());
        EXPECT_EQ(fused.k.bytes(), plain.k.bytes());
        EXPECT_EQ(fused.lse.bytes(), plain.lse.bytes());
      }
    }
  });
}

}  // namespace
}  // namespace nibble::test
