// SPDX-License-Identifier: MIT
// Packed weights times more tokens than the kernels for few take, forward and back: shapes where
// tiles of a GPU are whole, cut for several blocks, or shared out step by step, with edges that no
// tile ends at.
#include "ops/linear_support.h"

namespace nibble::test {
namespace {

struct Shape {
  int64_t n, out, in;
};
constexpr Shape kShapes[] = {{65, 8, 16},
                             {65, 264, 128},
                             {96, 1000, 1104},
                             {128, 520, 2560},
                             {129, 272, 3088},
                             {200, 48, 9728},
                             {256, 4104, 272},
                             {130, 33792, 144},
                             // of real models
                             {96, 960, 576},
                             {100, 576, 1536},
                             {66, 1152, 896}};

// Twice: what is left in scratch memory by the first call has no part in the second.
template <class F>
void expect_same_bits_again(Operand& out, F&& f) {
  const auto first = out.bytes();
  f();
  EXPECT_EQ(first, out.bytes());
}

TEST(LinearMany, Forward) {
  Both b;
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in}, 8), scale(DType::f32, {s.out});
    x.normal(uint64_t(s.in)), scale.fill([](int64_t i) { return 0.3 + double(i % 7); });
    Operand xa = magnitudes_of(x);
    const CanonicalNvfp4 c(s.out, s.in, uint64_t(s.n + s.out), CanonicalNvfp4::Signs::both);
    OwnedWeight w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
    OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
    for (const bool scaled : {false, true}) {
      if (scaled) w.w.row_scale = ref_w.w.row_scale = ref_a.w.row_scale = scale.cpu;
      // Logits are f32.
      Operand out(scaled ? DType::bf16 : DType::f32, {s.n, s.out}, 8),
          sums(DType::f32, {s.n, s.out});
      const auto run = [&] { b.cpu->linear(out.cpu, x.cpu, w.w, Activations::none); };
      run();
      b.reference().linear(out.ref, x.ref, ref_w.w, Activations::none);
      b.reference().linear(sums.ref, xa.ref, ref_a.w, Activations::none);
      expect_product(out, sums, sum_depth(s.in) + 2);
      expect_same_bits_again(out, run);
    }
  }
}

TEST(LinearMany, Dgrad) {
  Both b;
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand dy(DType::bf16, {s.n, s.out}, 8);
    dy.normal(uint64_t(s.out));
    Operand dya = magnitudes_of(dy);
    const CanonicalNvfp4 c(s.out, s.in, uint64_t(s.n + s.out), CanonicalNvfp4::Signs::both);
    OwnedWeight w = pack(*b.cpu, c), ref_w = pack(b.reference(), c);
    OwnedWeight ref_a = pack(b.reference(), c.magnitudes());
    for (const DType type : {DType::bf16, DType::f32}) {
      Operand dx(type, {s.n, s.in}, 8), sums(DType::f32, {s.n, s.in});
      const auto run = [&] { b.cpu->linear_dgrad(dx.cpu, dy.cpu, w.w, Accumulate::no); };
      run();
      b.reference().linear_dgrad(dx.ref, dy.ref, ref_w.w, Accumulate::no);
      b.reference().linear_dgrad(sums.ref, dya.ref, ref_a.w, Accumulate::no);
      expect_product(dx, sums, sum_depth(s.out) + 3, "dgrad");
      expect_same_bits_again(dx, run);
    }
  }
}

// Of rows that are columns of a wider gradient, as those of a part of a stacked weight are.
TEST(LinearMany, Wgrad) {
  Both b;
  for (const Shape& s : {Shape{65, 8, 16},
                         {96, 1000, 1104},
                         {17, 2048, 520},
                         {129, 272, 1032},
                         {250, 392, 640},
                         {96, 960, 576},
                         {128, 576, 1536},
                         {20, 1152, 896}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand dy(DType::bf16, {s.n, s.out + 24}, 8), x(DType::bf16, {s.n, s.in}, 16);
    dy.normal(uint64_t(s.out)), x.normal(uint64_t(s.in));
    Operand dya = magnitudes_of(dy), xa = magnitudes_of(x);
    Operand dw(DType::bf16, {s.out, s.in}), sums(DType::f32, {s.out, s.in});
    const auto part = [&](const Tensor& t) { return t.columns(16, s.out); };
    const auto run = [&] { b.cpu->linear_wgrad(dw.cpu, part(dy.cpu), x.cpu, {}); };
    run();
    b.reference().linear_wgrad(dw.ref, part(dy.ref), x.ref, {});
    b.reference().linear_wgrad(sums.ref, part(dya.ref), xa.ref, {});
    expect_product(dw, sums, sum_depth(s.n) + 1, "wgrad");
    expect_same_bits_again(dw, run);
    // The same bits with their squares, where a backend has those on the way: code for compute
    // capability 9.0 does, with up to 128 tokens.
    Operand parts(DType::f64, {kSquareParts}), square(DType::f64, {1});
    const auto written = dw.bytes();
    dw.fill([](int64_t) { return 1.0; }), parts.fill([](int64_t) { return 1.0; });
    const bool given = b.cpu->linear_wgrad_squares(dw.cpu, parts.cpu, part(dy.cpu), x.cpu, {});
    const bool expected = b.cpu->traits().code_capability == 90 && s.n <= 128;
    EXPECT_TRUE(given || !expected);
    if (!given) continue;
    EXPECT_EQ(dw.bytes(), written);
    b.cpu->sum_squares(square.cpu, dw.cpu);
    double sum = 0;
    for (int64_t i = 0; i < kSquareParts; ++i) sum += parts.cpu.as<double>()[i];
    EXPECT_NEAR(sum / square.cpu.as<double>()[0], 1, 1e-6);
  }
}

}  // namespace
}  // namespace nibble::test
