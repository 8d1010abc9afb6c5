// SPDX-License-Identifier: MIT
// RMS norm and rotary embedding against the reference, and the fused forms against the plain ones.
#include "ops/op_support.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, heads, d, padding;
};
constexpr Shape kShapes[] = {{1, 1, 2, 0},   {1, 1, 16, 0},  {3, 2, 32, 5},   {2, 3, 38, 0},
                             {5, 4, 64, 16}, {7, 8, 128, 3}, {1, 1, 2560, 0}, {9, 1, 1000, 1}};
constexpr double kEps = 1e-6;

// Sum of n squares in at least four lanes, division, eps, square root, reciprocal: the square
// root halves the relative error of the sum.
double norm_bound(int64_t n) { return (double(n / 4 + 8) / 2 + 5) * kRoundoff; }

TEST(Norm, RmsNormAndItsAlias) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (bool in_place : {false, true}) {
        for (bool with_rstd : {true, false}) {
          Operand x(act, {s.n, s.heads, s.d}, s.padding), out(act, {s.n, s.heads, s.d}, 4);
          Operand w(DType::f32, {s.d}), rstd(DType::f32, {s.n * s.heads});
          x.normal(1, 3.0), w.normal(2);
          Operand& o = in_place ? x : out;
          b.cpu->rms_norm(o.cpu, with_rstd ? rstd.cpu : Tensor{}, x.cpu, w.cpu, kEps);
          b.reference().rms_norm(o.ref, with_rstd ? rstd.ref : Tensor{}, x.ref, w.ref, kEps);
          expect_relative(o, norm_bound(s.d), "rms_norm");
          if (with_rstd) expect_relative(rstd, norm_bound(s.d), "rstd");
        }
      }
    }
  });
}

TEST(Norm, WeightsAndStatisticsInTheActivationType) {
  Both b;
  on_every_target([&] {
    for (DType act : {DType::bf16, DType::f16}) {
      Operand x(act, {3, 2, 48}), out(act, {3, 2, 48}), w(act, {48}), rstd(act, {6});
      Operand table(DType::f32, {3, 48}), narrow(act, {3, 48}), positions(DType::i32, {3});
      x.normal(1), w.normal(2), narrow.normal(3);
      b.cpu->rms_norm(out.cpu, rstd.cpu, x.cpu, w.cpu, kEps);
      b.reference().rms_norm(out.ref, rstd.ref, x.ref, w.ref, kEps);
      expect_relative(out, norm_bound(48), "rms_norm");
      expect_relative(rstd, norm_bound(48), "rstd");
      Operand rotated(act, {3, 2, 48}), plain(act, {3, 2, 48}), rstd2(act, {6});
      b.cpu->norm_rope(rotated.cpu, rstd2.cpu, x.cpu, w.cpu, narrow.cpu, kEps);
      b.cpu->rope(plain.cpu, out.cpu, narrow.cpu, Rotation::forward);
      EXPECT_EQ(rotated.bytes(), plain.bytes());
      EXPECT_EQ(rstd2.bytes(), rstd.bytes());
    }
  });
}

TEST(Norm, AddRmsNormIsAddThenRmsNorm) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t c : {1, 16, 37, 64, 576, 640, 896}) {
      for (int alias = 0; alias < 3; ++alias) {
        Operand x(act, {3, c}, 2), y(act, {3, c}), sum(act, {3, c}, 1), out(act, {3, c}, 3);
        Operand w(DType::f32, {c}), rstd(DType::f32, {3});
        x.normal(1), y.normal(2), w.normal(3);
        Operand plain_sum(act, {3, c}, 1), plain(act, {3, c}, 3), plain_rstd(DType::f32, {3});
        b.cpu->add(plain_sum.cpu, x.cpu, y.cpu);
        b.cpu->rms_norm(plain.cpu, plain_rstd.cpu, plain_sum.cpu, w.cpu, kEps);
        Operand& s = alias == 0 ? sum : alias == 1 ? x : y;
        b.cpu->add_rms_norm(out.cpu, rstd.cpu, s.cpu, x.cpu, y.cpu, w.cpu, kEps);
        EXPECT_EQ(s.bytes(), plain_sum.bytes());
        EXPECT_EQ(out.bytes(), plain.bytes());
        EXPECT_EQ(rstd.bytes(), plain_rstd.bytes());
        EXPECT_TRUE(out.intact() && s.intact());
      }
    }
  });
}

TEST(Norm, RopeTableIsExactAtLargePositions) {
  Both b;
  Operand positions(DType::i32, {4}), table(DType::f32, {4, 128});
  positions.fill([](int64_t i) { return double(i == 3 ? 131071 : i * 1000); });
  b.cpu->rope_table(table.cpu, positions.cpu, turns_of(1e6, table.cpu));
  b.reference().rope_table(table.ref, positions.ref, turns_of(1e6, table.ref));
  expect_close(
      table, [](int64_t) { return kRoundoff; }, "rope_table");
}

TEST(Norm, RopeBothWaysAndInPlace) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (Rotation way : {Rotation::forward, Rotation::backward}) {
        for (bool in_place : {false, true}) {
          Operand x(act, {s.n, s.heads, s.d}, s.padding), out(act, {s.n, s.heads, s.d}, 2);
          Operand table(DType::f32, {s.n, s.d}), positions(DType::i32, {s.n});
          x.normal(1);
          positions.fill([](int64_t i) { return double(i * 7); });
          b.reference().rope_table(table.ref, positions.ref, turns_of(1e4, table.ref));
          for (int64_t n = 0; n < s.n; ++n) {  // the same angles on both sides
            for (int64_t i = 0; i < s.d; ++i) {
              write_element(table.cpu, n, i, read_element(table.ref, n, i));
              write_element(table.ref, n, i, read_element(table.cpu, n, i));
            }
          }
          const double largest = 6;  // |x| here; each result is two products of it with cos, sin
          Operand& o = in_place ? x : out;
          b.cpu->rope(o.cpu, x.cpu, table.cpu, way);
          b.reference().rope(o.ref, x.ref, table.ref, way);
          expect_close(
              o, [&](int64_t) { return 3 * kRoundoff * 2 * largest; }, "rope");
        }
      }
    }
  });
}

TEST(Norm, NormRopeIsNormThenRope) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Shape& s : kShapes) {
      for (bool in_place : {false, true}) {
        Operand x(act, {s.n, s.heads, s.d}, s.padding), out(act, {s.n, s.heads, s.d}, 2);
        Operand w(DType::f32, {s.d}), table(DType::f32, {s.n, s.d}), positions(DType::i32, {s.n});
        Operand rstd(DType::f32, {s.n * s.heads}), plain_rstd(DType::f32, {s.n * s.heads});
        Operand plain(act, {s.n, s.heads, s.d}, 1);
        x.normal(1), w.normal(2);
        positions.fill([](int64_t i) { return double(i * 11); });
        b.cpu->rope_table(table.cpu, positions.cpu, turns_of(1e4, table.cpu));
        b.cpu->rms_norm(plain.cpu, plain_rstd.cpu, x.cpu, w.cpu, kEps);
        b.cpu->rope(plain.cpu, plain.cpu, table.cpu, Rotation::forward);
        Operand& o = in_place ? x : out;
        b.cpu->norm_rope(o.cpu, rstd.cpu, x.cpu, w.cpu, table.cpu, kEps);
        EXPECT_EQ(o.bytes(), plain.bytes());
        EXPECT_EQ(rstd.bytes(), plain_rstd.bytes());
        EXPECT_TRUE(o.intact());
      }
    }
  });
}

// With a cache, and as in training, where keys are the cache and values stay where they are.
TEST(Norm, SplitHeadsIsNormRopeAndAppend) {
  struct Heads {
    int64_t n, q, kv, d, padding;
  };
  Both b;
  on_every_target_and_type([&](DType act) {
    for (const Heads& s : {Heads{1, 4, 2, 128, 0}, Heads{3, 16, 8, 128, 8}, Heads{2, 3, 1, 128, 0},
                           Heads{2, 4, 2, 128, 1}, Heads{3, 4, 2, 64, 0}, Heads{140, 32, 8, 128, 0},
                           Heads{150, 6, 4, 128, 0}, Heads{2, 2, 2, 38, 0}, Heads{2, 9, 3, 64, 1},
                           Heads{33, 8, 2, 64, 8}}) {
      for (DType cache : {act, DType::f8_e4m3}) {
        for (bool training : {false, true}) {
          SCOPED_TRACE(::testing::Message() << s.n << " tokens, " << s.q << " and " << s.kv
                                            << " heads of " << s.d << ", " << training);
          if (training && cache != act) continue;
          Operand qkv(act, {s.n, (s.q + 2 * s.kv) * s.d}, s.padding);
          Operand norm_q(DType::f32, {s.d}), norm_k(DType::f32, {s.d});
          Operand table(DType::f32, {s.n, s.d}), positions(DType::i32, {s.n});
          Operand slots(DType::i32, {s.n});
          qkv.normal(1, 3.0), norm_q.normal(2), norm_k.normal(3);
          positions.fill([](int64_t i) { return double(i * 11); });
          slots.fill([&](int64_t i) { return double(s.n + 1 - i); });
          b.cpu->rope_table(table.cpu, positions.cpu, turns_of(1e4, table.cpu));
          struct Results {
            Operand q, k, q_rstd, k_rstd, cache_k, cache_v;
          } got, want;
          for (Results* r : {&got, &want}) {
            r->q = Operand(act, {s.n, s.q, s.d}), r->k = Operand(act, {s.n, s.kv, s.d});
            r->q_rstd = Operand(DType::f32, {s.n * s.q});
            r->k_rstd = Operand(DType::f32, {s.n * s.kv});
            r->cache_k = Operand(cache, {s.n + 2, s.kv, s.d}, 16);
            r->cache_v = Operand(cache, {s.n + 2, s.kv, s.d}, 32);
          }
          const auto heads = [&](int64_t first, int64_t count) {
            return qkv.cpu.columns(first * s.d, count * s.d).split_inner({s.n, count, s.d});
          };
          const KvView kv = training ? KvView{got.k.cpu, heads(s.q + s.kv, s.kv)}
                                     : KvView{got.cache_k.cpu, got.cache_v.cpu};
          b.cpu->split_heads({got.q.cpu, got.q_rstd.cpu, got.k.cpu, got.k_rstd.cpu}, kv, qkv.cpu,
                             {norm_q.cpu, norm_k.cpu}, table.cpu, slots.cpu, kEps);
          b.cpu->norm_rope(want.q.cpu, want.q_rstd.cpu, heads(0, s.q), norm_q.cpu, table.cpu, kEps);
          b.cpu->norm_rope(want.k.cpu, want.k_rstd.cpu, heads(s.q, s.kv), norm_k.cpu, table.cpu,
                           kEps);
          EXPECT_EQ(got.q.bytes(), want.q.bytes());
          EXPECT_EQ(got.k.bytes(), want.k.bytes());
          EXPECT_EQ(got.q_rstd.bytes(), want.q_rstd.bytes());
          EXPECT_EQ(got.k_rstd.bytes(), want.k_rstd.bytes());
          if (training) continue;
          b.cpu->kv_append({want.cache_k.cpu, want.cache_v.cpu}, want.k.cpu,
                           heads(s.q + s.kv, s.kv), slots.cpu);
          EXPECT_EQ(got.cache_k.bytes(), want.cache_k.bytes());
          EXPECT_EQ(got.cache_v.bytes(), want.cache_v.bytes());
          EXPECT_TRUE(got.cache_k.intact() && got.cache_v.intact());
        }
      }
    }
  });
}

}  // namespace
}  // namespace nibble::test
