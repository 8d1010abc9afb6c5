// SPDX-License-Identifier: MIT
// A product that is used often may come to be computed by another kernel; its bits stay.
#include "ops/linear_support.h"

namespace nibble::test {
namespace {

constexpr int kOften = 130;  // a GPU's autotuning is over by then (kernels/linear/gemm_autotune.h)

template <class F>
void expect_bits_stay(const char* what, Operand& out, F&& f) {
  f();
  const auto first = out.bytes();
  for (int i = 1; i < kOften; ++i) {
    f();
    ASSERT_EQ(first, out.bytes()) << what << ", call " << i;
  }
}

TEST(LinearOften, BitsStay) {
  Both b;
  struct Shape {
    int64_t n, out, in;
  };
  for (const Shape& s : {Shape{288, 640, 512}, {520, 264, 1032}}) {
    SCOPED_TRACE(::testing::Message() << s.n << " x " << s.out << " x " << s.in);
    Operand x(DType::bf16, {s.n, s.in}), w(DType::bf16, {s.out, s.in}),
        dy(DType::bf16, {s.n, s.out});
    x.normal(1), w.normal(2), dy.normal(3);
    Operand y(DType::bf16, {s.n, s.out}), dx(DType::bf16, {s.n, s.in}),
        dw(DType::bf16, {s.out, s.in});
    const LinearWeight weight = dense_weight(w.cpu, {});
    Operand y32(DType::f32, {s.n, s.out});
    expect_bits_stay("linear to f32", y32,
                     [&] { b.cpu->linear(y32.cpu, x.cpu, weight, Activations::none); });
    expect_bits_stay("linear", y, [&] { b.cpu->linear(y.cpu, x.cpu, weight, Activations::none); });
    expect_bits_stay("dgrad", dx,
                     [&] { b.cpu->linear_dgrad(dx.cpu, dy.cpu, weight, Accumulate::no); });
    expect_bits_stay("wgrad", dw, [&] { b.cpu->linear_wgrad(dw.cpu, dy.cpu, x.cpu, GradWrite()); });
  }
}

}  // namespace
}  // namespace nibble::test
