// SPDX-License-Identifier: MIT
// Products of bf16 pairs (kernels/gemm.h): the bits of fp32 panels in every layout, whatever the
// shape, the number of rows and threads; and what is peculiar to the instruction.
#include <algorithm>
#include <limits>

#include "ops/linear_support.h"

namespace nibble::test {
namespace {

constexpr const char* kPairs = "AVX3_BF16";
constexpr const char* kFloats = "AVX3";

class Bf16Pairs : public testing::Test {
 protected:
  void SetUp() override {
    const auto targets = cpu::available_targets();
    if (std::find(targets.begin(), targets.end(), kPairs) == targets.end()) {
      GTEST_SKIP() << "this processor has no products of bf16 pairs";
    }
  }
  void TearDown() override { cpu::select_target(""); }

  // What `run` leaves in `out` with fp32 panels, then with pairs.
  template <class F>
  void expect_same_bits(Operand& out, F run) {
    out.fill([](int64_t i) { return 0.25 * double(i % 5); });
    cpu::select_target(kFloats);
    ASSERT_FALSE(cpu::use_bf16_pairs());
    run();
    const auto want = out.bytes();
    out.fill([](int64_t i) { return 0.25 * double(i % 5); });
    cpu::select_target(kPairs);
    ASSERT_TRUE(cpu::use_bf16_pairs());
    run();
    EXPECT_EQ(out.bytes(), want);
    EXPECT_TRUE(out.intact());
  }
};

struct Shape {
  int64_t n, out, in;
};

// Rows for few and for many, K odd, within a chunk and over several, edges of tiles.
TEST_F(Bf16Pairs, DenseForwardHasTheBitsOfFp32Panels) {
  const auto backend = make_cpu_backend(2);
  for (const Shape& s : {Shape{1, 1, 1},
                         {3, 5, 7},
                         {1, 33, 321},
                         {17, 40, 640},
                         {192, 33, 1},
                         {200, 31, 31},
                         {200, 65, 97},
                         {193, 70, 643},
                         {300, 130, 1000}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in}, 3), w(DType::bf16, {s.out, s.in});
    x.normal(1), w.normal(2);
    for (const DType type : {DType::bf16, DType::f32}) {
      Operand out(type, {s.n, s.out}, 2);
      expect_same_bits(
          out, [&] { backend->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none); });
    }
  }
}

TEST_F(Bf16Pairs, PackedForwardHasTheBitsOfFp32Panels) {
  const auto backend = make_cpu_backend(2);
  for (const Shape& s : {Shape{1, 1, 16},
                         {2, 17, 48},
                         {3, 50, 336},
                         {4, 40, 640},
                         {5, 40, 112},
                         {33, 50, 1104},
                         {192, 20, 16},
                         {200, 130, 976}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in}, 5), out(DType::f32, {s.n, s.out}, 2);
    Operand scale(DType::f32, {s.out});
    x.normal(uint64_t(s.in)), scale.normal(9);
    OwnedWeight w =
        pack(*backend, CanonicalNvfp4(s.out, s.in, uint64_t(s.n), CanonicalNvfp4::Signs::both));
    for (const bool scaled : {false, true}) {
      if (scaled) w.w.row_scale = scale.cpu;
      expect_same_bits(out, [&] { backend->linear(out.cpu, x.cpu, w.w, Activations::none); });
    }
  }
}

TEST_F(Bf16Pairs, GradientsHaveTheBitsOfFp32Panels) {
  const auto backend = make_cpu_backend(2);
  for (const Shape& s : {Shape{1, 3, 16},
                         {2, 17, 32},
                         {15, 33, 48},
                         {65, 321, 336},
                         {333, 75, 144},
                         {700, 40, 64}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in}, 5), dy(DType::bf16, {s.n, s.out}, 7);
    Operand w(DType::bf16, {s.out, s.in}), dx(DType::bf16, {s.n, s.in}, 3);
    x.normal(1), dy.normal(2), w.normal(3);
    OwnedWeight packed =
        pack(*backend, CanonicalNvfp4(s.out, s.in, uint64_t(s.n), CanonicalNvfp4::Signs::both));
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      expect_same_bits(
          dx, [&] { backend->linear_dgrad(dx.cpu, dy.cpu, dense_weight(w.cpu), accumulate); });
      expect_same_bits(dx, [&] { backend->linear_dgrad(dx.cpu, dy.cpu, packed.w, accumulate); });
      for (const DType type : {DType::bf16, DType::f32}) {
        Operand dw(type, {s.out, s.in});
        expect_same_bits(dw, [&] {
          backend->linear_wgrad(dw.cpu, dy.cpu, x.cpu, {accumulate, 1, 2});
        });
      }
    }
  }
}

TEST_F(Bf16Pairs, AnElementDependsNeitherOnRowsNorOnThreads) {
  constexpr int64_t kRows = 400, kOut = 130, kIn = 656;
  Operand x(DType::bf16, {kRows, kIn}), dense(DType::bf16, {kOut, kIn});
  x.normal(1), dense.normal(2);
  const CanonicalNvfp4 c(kOut, kIn, 6);
  std::vector<uint8_t> first;
  for (const int threads : {1, 2, 3, 7}) {
    const auto backend = make_cpu_backend(threads);
    OwnedWeight packed = pack(*backend, c);
    for (const LinearWeight& w : {packed.w, dense_weight(dense.cpu)}) {
      Operand out(DType::f32, {kRows, kOut});
      backend->linear(out.cpu, x.cpu, w, Activations::none);
      for (const int64_t n : {1, 2, 3, 4, 5, 8, 13, 191, 192, 200}) {
        Operand some(DType::f32, {n, kOut});
        backend->linear(some.cpu, x.cpu.slice(kRows - n, n), w, Activations::none);
        ASSERT_EQ(std::memcmp(some.cpu.data, out.cpu.row<float>(kRows - n),
                              size_t(n * kOut) * sizeof(float)),
                  0)
            << n;
      }
      if (w.is_packed()) {
        if (first.empty()) first = out.bytes();
        EXPECT_EQ(out.bytes(), first) << threads;
      }
    }
  }
}

// Inputs below 2^-126 count as zero, and so do such sums: nothing is off by more.
TEST_F(Bf16Pairs, SubnormalsCountAsZero) {
  const auto backend = make_cpu_backend(2);
  constexpr int64_t kIn = 70, kOut = 40;
  constexpr double kSmallest = 0x1p-126;
  for (const int64_t n : {3, 200}) {
    Operand x(DType::bf16, {n, kIn}), w(DType::bf16, {kOut, kIn}), out(DType::f32, {n, kOut});
    x.fill([](int64_t i) { return kSmallest * (double(i % 23) - 11) / 8; });
    w.fill([](int64_t i) { return (double(i % 13) - 6) / 4; });
    RefBackend<double> ref;
    backend->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none);
    static_cast<Backend&>(ref).linear(out.ref, x.ref, dense_weight(w.ref), Activations::none);
    // A product loses at most 1.5 * 2^-126, an addition as much as the smallest number.
    expect_close(
        out, [](int64_t) { return 2.5 * kSmallest * double(kIn); }, "subnormal");
    // And what is far from there is untouched.
    x.fill([](int64_t i) { return i % 2 == 0 ? 0x1p-130 : 1.0; });
    w.fill([](int64_t) { return 1.0; });
    backend->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none);
    for (const double v : out.cpu_values()) EXPECT_EQ(v, kIn / 2);
  }
}

TEST_F(Bf16Pairs, WhatIsNotFiniteShows) {
  const auto backend = make_cpu_backend(2);
  constexpr int64_t kIn = 65, kOut = 40;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const int64_t n : {5, 200}) {
    for (const int64_t at : {0, 1, 31, 64}) {
      Operand x(DType::bf16, {n, kIn}), w(DType::bf16, {kOut, kIn}), out(DType::f32, {n, kOut});
      // Row 1 has a NaN, row 2 an infinity, rows 3 and 4 one that meets a zero or its opposite.
      x.fill([&](int64_t i) {
        if (i % kIn != at) return 1.0;
        const int64_t row = i / kIn;
        return row == 1 ? nan : row == 2 || row == 3 ? inf : row == 4 ? -inf : 1.0;
      });
      w.fill([&](int64_t i) { return i / kIn == 7 && i % kIn == at ? 0.0 : 1.0; });
      backend->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none);
      const auto y = [&](int64_t row, int64_t col) { return out.cpu.row<float>(row)[col]; };
      EXPECT_EQ(y(0, 0), float(kIn));
      EXPECT_EQ(y(0, 7), float(kIn - 1));
      EXPECT_TRUE(std::isnan(y(1, 0)) && std::isnan(y(1, 7)) && std::isnan(y(2, 7)));
      EXPECT_EQ(y(3, 39), std::numeric_limits<float>::infinity());
      EXPECT_EQ(y(4, 39), -std::numeric_limits<float>::infinity());
    }
  }
}

// Neighbours of a tensor have no part in it: an odd K ends with a zero, not with what follows.
TEST_F(Bf16Pairs, AnOddSumReadsNothingBeyondItsEnd) {
  const auto backend = make_cpu_backend(1);
  for (const int64_t n : {2, 200}) {
    Operand x(DType::bf16, {n, 9}, 1), w(DType::bf16, {3, 9}), out(DType::f32, {n, 3});
    x.fill([](int64_t) { return 1.0; }), w.fill([](int64_t) { return 2.0; });
    backend->linear(out.cpu, x.cpu, dense_weight(w.cpu), Activations::none);
    for (const double v : out.cpu_values()) EXPECT_EQ(v, 18.0);
  }
}

// Memory that ends where the tensors do, for a run with an address sanitizer: rows of K of fewer
// elements than a panel has, and just one more.
TEST_F(Bf16Pairs, NothingBeyondATensorIsRead) {
  const auto backend = make_cpu_backend(1);
  const bf16_t one = to_bf16(1.0f);
  for (const int64_t n : {1, 3, 200}) {
    for (const int64_t width : {1, 5, 11, 13, 15, 17, 31, 33}) {
      const std::vector<bf16_t> dy(size_t(n * width), one), x(size_t(n * 7), one);
      std::vector<float> dw(size_t(width * 7)), dx(size_t(n * 7));
      const auto tensor = [](const auto& v, DType type, int64_t rows) {
        return make_tensor(const_cast<void*>(static_cast<const void*>(v.data())), type,
                           {rows, int64_t(v.size()) / rows});
      };
      const Tensor dy_t = tensor(dy, DType::bf16, n);
      backend->linear_wgrad(tensor(dw, DType::f32, width), dy_t, tensor(x, DType::bf16, n), {});
      for (const float v : dw) EXPECT_EQ(v, float(n));
      const std::vector<bf16_t> w(size_t(width * 7), one);
      backend->linear_dgrad(tensor(dx, DType::f32, n), dy_t,
                            dense_weight(tensor(w, DType::bf16, width)), Accumulate::no);
      for (const float v : dx) EXPECT_EQ(v, float(width));
    }
  }
}

}  // namespace
}  // namespace nibble::test
