// SPDX-License-Identifier: MIT
// Biases of heads and heads without norms: the ops against the reference, fused forms bit for bit,
// and key biases as large as real models have them, which 16 and 8 bits must survive.
#include <algorithm>

#include "ops/back_support.h"

namespace nibble::test {
namespace {

constexpr double kRoundoff = 0x1p-24;

struct Shape {
  int64_t n, heads, d, padding;
};
constexpr Shape kShapes[] = {{1, 1, 2, 0},    {3, 2, 16, 0},  {5, 3, 38, 5},   {2, 7, 64, 0},
                             {33, 14, 64, 8}, {4, 2, 128, 0}, {40, 3, 128, 64}};

// As in real models: the slowest eighth of the pairs has hundreds.
double key_bias(int64_t i, int64_t d, double z) {
  const int64_t pair = i % (d / 2);
  return pair >= d / 2 - std::max<int64_t>(1, d / 16) ? 300 + 50 * z : z;
}
Operand key_biases(int64_t heads, int64_t d, uint64_t seed, DType type = DType::f32) {
  Operand bias(type, {heads * d});
  bias.fill(
      [&](int64_t i) { return key_bias(i % d, d, normal_pair(philox(seed, 0, uint64_t(i)))[0]); });
  return bias;
}

// The same angles on both sides.
Operand angles(Both& b, int64_t n, int64_t d, DType type = DType::f32, double factor = 1) {
  Operand table(type, {n, d}), positions(DType::i32, {n});
  positions.fill([](int64_t i) { return double(i * 7); });
  RopeFrequencies f = turns_of(1e6, table.ref);
  f.factor = factor;
  b.reference().rope_table(table.ref, positions.ref, f);
  adopt_reference(table);
  return table;
}

TEST(Bias, AddBias) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (const bool in_place : {false, true}) {
        Operand x(act, {s.n, s.heads, s.d}, s.padding), out(act, {s.n, s.heads, s.d}, 2);
        Operand bias = key_biases(s.heads, s.d, 3);
        x.normal(1);
        Operand& o = in_place ? x : out;
        b.cpu->add_bias(o.cpu, x.cpu, bias.cpu);
        b.reference().add_bias(o.ref, x.ref, bias.ref);
        expect_relative(o, kRoundoff, "add_bias");
      }
    }
  });
}

// Two roundings of x + bias and of a product, one of the sum; with still pairs two more of the
// bias, which is then no larger than x + bias was.
TEST(Bias, BiasRope) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (const int64_t begin : {int64_t(INT32_MAX), s.d / 2 - 1, s.d / 4, int64_t(0)}) {
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << s.heads << " heads of " << s.d << ", still from " << begin);
          const double factor = 1.25;
          Operand x(act, {s.n, s.heads, s.d}, s.padding), out(act, {s.n, s.heads, s.d}, 2);
          Operand bias = key_biases(s.heads, s.d, 3),
                  table = angles(b, s.n, s.d, DType::f32, factor);
          x.normal(1);
          const auto biases = bias.ref_values();
          const StillPairs still{begin, float(factor)};
          Operand& o = in_place ? x : out;
          b.cpu->bias_rope(o.cpu, x.cpu, bias.cpu, table.cpu, still);
          b.reference().bias_rope(o.ref, x.ref, bias.ref, table.ref, still);
          expect_close(
              o,
              [&](int64_t i) {
                const int64_t at = i % (s.heads * s.d), half = s.d / 2;
                const int64_t other = at % s.d < half ? at + half : at - half;
                const double sum = std::abs(biases[size_t(at)]) + std::abs(biases[size_t(other)]);
                return 5 * kRoundoff * factor * (12 + sum);  // |x| < 6
              },
              "bias_rope");
        }
      }
    }
  });
}

TEST(Bias, BiasBack) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const auto& [n, width, padding] :
         {std::array<int64_t, 3>{1, 3, 0}, {17, 1152, 64}, {300, 100, 4}, {1000, 64, 0}}) {
      for (const Accumulate a : {Accumulate::no, Accumulate::yes}) {
        Operand dy(act, {n, width}, padding), db(DType::f32, {width});
        dy.normal(1), db.normal(2);
        std::vector<double> sums(size_t(width), 6.0);
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t i = 0; i < width; ++i)
            sums[size_t(i)] += std::abs(read_element(dy.ref, r, i));
        }
        b.cpu->bias_back(db.cpu, dy.cpu, a);
        b.reference().bias_back(db.ref, dy.ref, a);
        expect_close(
            db, [&](int64_t i) { return double(n + 1) * kRoundoff * sums[size_t(i)]; },
            "bias_back");
      }
    }
  });
}

TEST(Bias, ThreadsDoNotShow) {
  on_every_target([&] {
    std::vector<std::vector<uint8_t>> results;
    for (const int threads : {1, 3}) {
      const auto backend = make_tested_backend(threads);
      Operand dy(DType::bf16, {700, 1152}), db(DType::f32, {1152});
      dy.normal(1);
      backend->bias_back(db.cpu, dy.cpu, Accumulate::no);
      results.push_back(db.bytes());
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

// With a cache, and as in training, where keys are the cache and values stay where they are.
TEST(Bias, SplitHeadsIsRotationBiasesAndAppend) {
  struct Heads {
    int64_t n, q, kv, d, padding;
  };
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Heads& s : {Heads{1, 14, 2, 64, 0}, Heads{3, 12, 2, 128, 8}, Heads{2, 9, 3, 64, 0},
                           Heads{140, 14, 2, 64, 0}, Heads{150, 6, 1, 128, 0},
                           Heads{2, 3, 1, 38, 0}, Heads{5, 4, 4, 16, 1}}) {
      for (const bool biased : {true, false}) {
        for (const DType cache : {act, DType::f8_e4m3}) {
          for (const bool training : {false, true}) {
            if (training && cache != act) continue;
            SCOPED_TRACE(::testing::Message() << s.n << " tokens, " << s.q << " and " << s.kv
                                              << " heads of " << s.d << ", " << training << biased);
            Operand bias = key_biases(s.q + 2 * s.kv, s.d, 2), table = angles(b, s.n, s.d);
            Operand slots(DType::i32, {s.n});
            slots.fill([&](int64_t i) { return double(s.n + 1 - i); });
            const StillPairs still{s.d / 2 - std::max<int64_t>(1, s.d / 8), 1.0f};
            struct Results {
              Operand qkv, q, k, cache_k, cache_v;
            } got, want;
            for (Results* r : {&got, &want}) {
              r->qkv = Operand(act, {s.n, (s.q + 2 * s.kv) * s.d}, s.padding);
              r->q = Operand(act, {s.n, s.q, s.d}), r->k = Operand(act, {s.n, s.kv, s.d});
              r->cache_k = Operand(cache, {s.n + 2, s.kv, s.d}, 16);
              r->cache_v = Operand(cache, {s.n + 2, s.kv, s.d}, 32);
              r->qkv.normal(1, 3.0);
            }
            const auto heads = [&](Results& r, int64_t first, int64_t count) {
              return r.qkv.cpu.columns(first * s.d, count * s.d).split_inner({s.n, count, s.d});
            };
            const KvView kv = training ? KvView{got.k.cpu, heads(got, s.q + s.kv, s.kv)}
                                       : KvView{got.cache_k.cpu, got.cache_v.cpu};
            HeadParams params;
            if (biased) params.bias = bias.cpu, params.still = still;
            b.cpu->split_heads({got.q.cpu, {}, got.k.cpu, {}}, kv, got.qkv.cpu, params, table.cpu,
                               slots.cpu, 1e-6);
            const Tensor values = heads(want, s.q + s.kv, s.kv);
            if (biased) {
              const auto part = [&](int64_t first, int64_t count) {
                return bias.cpu.slice(first * s.d, count * s.d);
              };
              b.cpu->bias_rope(want.q.cpu, heads(want, 0, s.q), part(0, s.q), table.cpu, {});
              b.cpu->bias_rope(want.k.cpu, heads(want, s.q, s.kv), part(s.q, s.kv), table.cpu,
                               still);
              b.cpu->add_bias(values, values, part(s.q + s.kv, s.kv));
            } else {
              b.cpu->rope(want.q.cpu, heads(want, 0, s.q), table.cpu, Rotation::forward);
              b.cpu->rope(want.k.cpu, heads(want, s.q, s.kv), table.cpu, Rotation::forward);
            }
            EXPECT_EQ(got.q.bytes(), want.q.bytes());
            EXPECT_EQ(got.k.bytes(), want.k.bytes());
            if (training) {
              EXPECT_EQ(got.qkv.bytes(), want.qkv.bytes());
              continue;
            }
            b.cpu->kv_append({want.cache_k.cpu, want.cache_v.cpu}, want.k.cpu, values, slots.cpu);
            EXPECT_EQ(got.cache_k.bytes(), want.cache_k.bytes());
            EXPECT_EQ(got.cache_v.bytes(), want.cache_v.bytes());
            EXPECT_TRUE(got.cache_k.intact() && got.cache_v.intact());
          }
        }
      }
    }
  });
}

// One sequence of 200 tokens through heads whose keys have biases of some 300 in the pairs that
// hardly turn. Relative L2 of attention's result against the reference without rounding.
double attention_error(DType act, DType cache, bool with_still) {
  const int64_t n = 200, hq = 7, hkv = 1, d = 64;
  Both b;
  Operand qkv(act, {n, (hq + 2 * hkv) * d}), table = angles(b, n, d);
  qkv.normal(1);
  Operand bias(DType::f32, {(hq + 2 * hkv) * d});
  bias.fill([&](int64_t i) {
    const double z = normal_pair(philox(5, 0, uint64_t(i)))[0];
    return i / d == hq ? key_bias(i % d, d, z) : z;
  });
  Operand slots(DType::i32, {n});
  slots.fill([](int64_t i) { return double(i); });
  Operand sequences = packed_sequences({int32_t(n)});
  Operand q(act, {n, hq, d}), k(act, {n, hkv, d}), out(act, {n, hq, d});
  Operand cache_k(cache, {n, hkv, d}), cache_v(cache, {n, hkv, d});
  // turns_of(1e6, D = 64) at positions up to 1400: pairs from 17 on turn by less than a radian.
  const StillPairs still{with_still ? 17 : INT32_MAX, 1.0f};
  b.cpu->split_heads_attention(out.cpu, {}, {q.cpu, {}, k.cpu, {}}, {cache_k.cpu, cache_v.cpu},
                               qkv.cpu, {{}, {}, bias.cpu, still}, table.cpu, slots.cpu,
                               sequences.cpu, 1e-6);
  // The reference never takes anything off a key, and its cache is as wide as its numbers.
  Operand wide_k(DType::f32, {n, hkv, d}), wide_v(DType::f32, {n, hkv, d});
  b.reference().split_heads_attention(out.ref, {}, {q.ref, {}, k.ref, {}}, {wide_k.ref, wide_v.ref},
                                      qkv.ref, {{}, {}, bias.ref, {}}, table.ref, slots.ref,
                                      sequences.ref, 1e-6);
  double difference = 0, norm = 0;
  const auto got = out.cpu_values(), want = out.ref_values();
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

// What is common to all keys changes no result, and where it is taken off what is left of a key
// has the precision of its type: a few roundings of 2^-9 (bf16), 2^-12 (fp16), 2^-5 (e4m3, keys and
// values, through an exponential).
TEST(Bias, LargeKeyBiasesSurviveEveryType) {
  struct Case {
    DType act, cache;
    double bound, without;  // and what it is at least where nothing is taken off
  };
  for (const Case& c :
       {Case{DType::f32, DType::f32, 1e-5, 0}, Case{DType::bf16, DType::bf16, 4 * 0x1p-9, 0.02},
        Case{DType::f16, DType::f16, 4 * 0x1p-12, 0.002},
        Case{DType::f32, DType::f8_e4m3, 3 * 0x1p-5, 0.2},
        Case{DType::bf16, DType::f8_e4m3, 3 * 0x1p-5, 0.2}}) {
    SCOPED_TRACE(std::string(dtype_name(c.act)) + ", cache " + std::string(dtype_name(c.cache)));
    const double still = attention_error(c.act, c.cache, true);
    const double whole = attention_error(c.act, c.cache, false);
    EXPECT_LT(still, c.bound);
    EXPECT_GE(whole, c.without);
    std::printf("%s, cache %s: %.1e as it is, %.1e without what is common\n",
                dtype_name(c.act).data(), dtype_name(c.cache).data(), whole, still);
  }
}

}  // namespace
}  // namespace nibble::test
