// SPDX-License-Identifier: MIT
// Gradients of SwiGLU, the embedding and gathered rows.
#include <numeric>

#include "ops/back_support.h"
#include "quant/rounding.h"

namespace nibble::test {
namespace {

// A NaN on the CPU side shows itself in expect_close, whose comparison it fails.
void check_swiglu(Both& b, DType act, int64_t n, int64_t f, bool in_place, double spread) {
  Operand gate(act, {n, f}, 3), up(act, {n, f}, 5), dout(act, {n, f}, 1);
  Operand dgate(act, {n, f}, 2), dup(act, {n, f}, 4);
  gate.normal(1, spread), up.normal(2), dout.normal(3);
  const auto g = gate.ref_values(), u = up.ref_values(), d = dout.ref_values();
  Operand &dg = in_place ? gate : dgate, &du = in_place ? up : dup;
  b.cpu->swiglu_back(dg.cpu, du.cpu, dout.cpu, gate.cpu, up.cpu);
  b.reference().swiglu_back(dg.ref, du.ref, dout.ref, gate.ref, up.ref);
  // e^-|g| is off by 2 ulp (below its smallest normal number by as many steps); s and 1 - s by
  // three roundings more; products.
  const auto sigmoid = [&](size_t i) { return 1 / (1 + std::exp(-g[i])); };
  expect_close(
      dg,
      [&](int64_t k) {
        const size_t i = size_t(k);
        const double s = sigmoid(i), reach = 1 + std::abs(g[i]) * (1 - s);
        return std::abs(d[i] * u[i]) * (24 * kRoundoff * s + 0x1p-146) * reach;
      },
      "dgate");
  expect_close(
      du,
      [&](int64_t k) {
        const size_t i = size_t(k);
        return std::abs(d[i] * g[i]) * (12 * kRoundoff * sigmoid(i) + 0x1p-146);
      },
      "dup");
}

TEST(ElementwiseBack, Swiglu) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (int64_t f : {1, 7, 16, 33, 640}) {
      for (bool in_place : {false, true}) {
        check_swiglu(b, act, 3, f, in_place, 3.0);
        check_swiglu(b, act, 2, f, in_place, 60.0);  // where e^-|g| underflows
      }
    }
  });
}

// Ids below v with repetitions and gaps, and the order that sorts them.
struct Ids {
  std::vector<int32_t> ids, order;
  Ids(int64_t n, int64_t v) {
    for (int64_t i = 0; i < n; ++i) {
      // Half of the batch is one token; 2, 5, 8 and so on are absent.
      const int32_t some = int32_t(philox(9, 0, uint64_t(i))[0] % uint32_t(v * 2 / 3));
      ids.push_back(i % 2 ? 1 : some * 3 / 2);
    }
    order.resize(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return ids[size_t(a)] < ids[size_t(b)]; });
  }
  Tensor id_tensor() { return make_tensor(ids.data(), DType::i32, {int64_t(ids.size())}); }
  Tensor order_tensor() { return make_tensor(order.data(), DType::i32, {int64_t(ids.size())}); }
};

float as_float(const Tensor& t, int64_t row, int64_t i) { return float(read_element(t, row, i)); }

// What the contract says, in floats: sums in the given order, one rounding to the storage type.
std::vector<double> expected_table(const Operand& before, const Operand& dx, const Ids& ids,
                                   const GradWrite& write) {
  const int64_t v = before.cpu.dim(0), c = before.cpu.dim(1);
  const bool add = write.accumulate == Accumulate::yes;
  std::vector<double> out;
  for (int64_t id = 0; id < v; ++id) {
    for (int64_t i = 0; i < c; ++i) {
      float sum = 0;
      bool present = false;
      for (int32_t r : ids.order) {
        if (ids.ids[size_t(r)] != id) continue;
        sum = present ? sum + as_float(dx.cpu, r, i) : as_float(dx.cpu, r, i);
        present = true;
      }
      const float old = as_float(before.cpu, id, i);
      Operand one(before.cpu.dtype, {1, 1});
      if (!present) {
        out.push_back(add ? double(old) : 0.0);
      } else if (add && before.cpu.dtype == DType::bf16) {
        const uint32_t bits =
            random_bits(write.seed, write.stream, uint64_t(write.offset + id * c + i));
        out.push_back(double(to_float(stochastic_bf16(old + sum, bits))));
      } else {
        write_element(one.cpu, 0, 0, double(add ? old + sum : sum));
        out.push_back(read_element(one.cpu, 0, 0));
      }
    }
  }
  return out;
}

TEST(ElementwiseBack, EmbedIsExact) {
  Both b;
  on_every_target_and_type([&](DType act) {
    for (DType grad : {DType::f32, DType::bf16, act}) {
      for (int64_t c : {1, 3, 32, 301}) {
        for (Accumulate a : {Accumulate::no, Accumulate::yes}) {
          Ids ids(130, 20);
          Operand dtable(grad, {20, c}), dx(act, {130, c}, 3);
          dtable.normal(1), dx.normal(2);
          const GradWrite write{a, 77, 5, 1003};
          const auto want = expected_table(dtable, dx, ids, write);
          b.cpu->embed_back(dtable.cpu, dx.cpu, ids.id_tensor(), ids.order_tensor(), write);
          EXPECT_EQ(dtable.cpu_values(), want) << c << " " << dtype_name(grad);
          EXPECT_TRUE(dtable.intact());
        }
      }
    }
  });
}

// Sums that are exact in floats, so that the reference rounds the very same numbers.
TEST(ElementwiseBack, EmbedRoundsAsTheReference) {
  Both b;
  Ids ids(60, 9);
  Operand dx(DType::f32, {60, 10}), table(DType::bf16, {9, 10}), other(DType::bf16, {9, 10});
  dx.fill([](int64_t i) { return double(int(philox(3, 0, uint64_t(i))[0] % 512) - 256) / 64; });
  table.normal(4), other.normal(4);
  for (uint64_t seed : {1u, 2u}) {
    const GradWrite write{Accumulate::yes, seed, 3};
    b.cpu->embed_back(table.cpu, dx.cpu, ids.id_tensor(), ids.order_tensor(), write);
    b.reference().embed_back(other.cpu, dx.ref, ids.id_tensor(), ids.order_tensor(), write);
    EXPECT_EQ(table.bytes(), other.bytes());
  }
  Operand third(DType::bf16, {9, 10});
  third.normal(4);
  b.cpu->embed_back(third.cpu, dx.cpu, ids.id_tensor(), ids.order_tensor(),
                    {Accumulate::yes, 5, 3});
  b.cpu->embed_back(third.cpu, dx.cpu, ids.id_tensor(), ids.order_tensor(),
                    {Accumulate::yes, 2, 3});
  EXPECT_NE(table.bytes(), third.bytes());  // the seed matters
}

TEST(ElementwiseBack, ScatterIsTheTransposeOfGather) {
  Both b;
  on_every_target_and_type([&](DType act) {
    Operand x(act, {4, 37}, 2), out(act, {9, 37}, 3), back(act, {4, 37}), rows(DType::i32, {4});
    x.normal(1), out.normal(2);
    rows.fill([](int64_t i) { return std::array{7.0, 0.0, 8.0, 3.0}[size_t(i)]; });
    b.cpu->scatter_rows(out.cpu, x.cpu, rows.cpu);
    b.reference().scatter_rows(out.ref, x.ref, rows.ref);
    EXPECT_EQ(out.cpu_values(), out.ref_values());
    EXPECT_TRUE(out.intact());
    b.cpu->gather_rows(back.cpu, out.cpu, rows.cpu);
    EXPECT_EQ(back.bytes(), x.bytes());
  });
}

TEST(ElementwiseBack, ThreadsDoNotShow) {
  on_every_target([&] {
    std::vector<std::vector<uint8_t>> results;
    for (int threads : {1, 3}) {
      const auto backend = make_tested_backend(threads);
      Operand gate(DType::f32, {90, 1000}), up(DType::f32, {90, 1000}), d(DType::f32, {90, 1000});
      gate.normal(1), up.normal(2), d.normal(3);
      Ids ids(90, 7);
      Operand table(DType::bf16, {7, 1000}), out(DType::f32, {120, 1000}), rows(DType::i32, {90});
      table.normal(4);
      rows.fill([](int64_t i) { return double(119 - i); });
      backend->embed_back(table.cpu, d.cpu, ids.id_tensor(), ids.order_tensor(),
                          {Accumulate::yes, 1, 2});
      backend->scatter_rows(out.cpu, d.cpu, rows.cpu);
      backend->swiglu_back(gate.cpu, up.cpu, d.cpu, gate.cpu, up.cpu);
      for (const Operand* o : {&gate, &up, &table, &out}) results.push_back(o->bytes());
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i], results[i + 4]) << i;
  });
}

}  // namespace
}  // namespace nibble::test
