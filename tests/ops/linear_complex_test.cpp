// SPDX-License-Identifier: MIT
// Gradients of the linear layer on the reference backend against complex steps of its forward.
#include <gtest/gtest.h>

#include "core/rng.h"
#include "support/ref_backend.h"

namespace nibble::test {
namespace {

using Complex = std::complex<double>;
constexpr int64_t kTokens = 3, kOut = 5, kIn = 32;
constexpr double kStep = 1e-30;

struct Matrix {
  std::vector<Complex> v;
  Tensor t;
  Matrix(int64_t rows, int64_t cols, uint64_t seed) : v(size_t(rows * cols)) {
    for (size_t i = 0; i < v.size(); ++i) v[i] = normal_pair(philox(seed, 0, i))[0];
    t = make_tensor(v.data(), DType::c128, {rows, cols});
  }
};

// A layer whose loss is the sum of dy * y.
struct Layer {
  explicit Layer(Tensor scale, bool quantised) : row_scale(scale), packed_weight(quantised) {
    w.out = kOut;
    w.in = kIn;
    w.row_scale = row_scale;
    if (quantised) {
      memory.resize(backend.packed_bytes(kOut, kIn) / sizeof(Complex));
      w.packed = make_tensor(memory.data(), DType::u8, {int64_t(memory.size() * sizeof(Complex))});
    } else {
      w.dense = master.t;
    }
  }
  Complex loss() {
    if (packed_weight) backend.quantize_rows(w, 0, master.t, ScaleRule::four_over_six);
    Matrix y(kTokens, kOut, 9);
    backend.linear(y.t, x.t, w, Activations::none);
    Complex sum{};
    for (size_t i = 0; i < y.v.size(); ++i) sum += y.v[i] * dy.v[i];
    return sum;
  }

  RefBackend<Complex> reference;
  Backend& backend = reference;
  Matrix x{kTokens, kIn, 1}, master{kOut, kIn, 2}, dy{kTokens, kOut, 3};
  Tensor row_scale;
  bool packed_weight;
  std::vector<Complex> memory;
  LinearWeight w;
};

// The largest difference between a gradient and complex steps of what it is the gradient of.
double worst_error(Layer& layer, Matrix& variable, const Matrix& gradient) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < variable.v.size(); ++i) {
    const Complex kept = variable.v[i];
    variable.v[i] += Complex(0, kStep);
    const double exact = layer.loss().imag() / kStep;
    variable.v[i] = kept;
    worst = std::max(worst, std::abs(gradient.v[i].real() - exact));
    largest = std::max(largest, std::abs(exact));
  }
  return worst / largest;
}

void check(bool quantised, bool scaled) {
  std::vector<float> scale{0.5f, 2.0f, 0.3f, 1.0f, 1.7f};
  const Tensor row_scale = scaled ? make_tensor(scale.data(), DType::f32, {kOut}) : Tensor{};
  Layer layer(row_scale, quantised);
  layer.loss();
  Matrix dx(kTokens, kIn, 4), dw(kOut, kIn, 5);
  layer.backend.linear_dgrad(dx.t, layer.dy.t, layer.w, Accumulate::no);
  EXPECT_LT(worst_error(layer, layer.x, dx), 1e-12);
  layer.backend.linear_wgrad(dw.t, layer.dy.t, layer.x.t, {});
  if (quantised) {
    // Straight through the quantiser: master * row_scale / row_scale.
    EXPECT_LT(worst_error(layer, layer.master, dw), 1e-12);
  } else if (!scaled) {
    EXPECT_LT(worst_error(layer, layer.master, dw), 1e-12);
  }
  // Adding doubles it.
  const Matrix once = dw;
  layer.backend.linear_wgrad(dw.t, layer.dy.t, layer.x.t, {Accumulate::yes, 0, 0});
  for (size_t i = 0; i < dw.v.size(); ++i) EXPECT_EQ(dw.v[i], 2.0 * once.v[i]);
}

TEST(LinearComplexStep, DenseWeights) { check(false, false), check(false, true); }
TEST(LinearComplexStep, QuantisedStraightThrough) { check(true, false), check(true, true); }

}  // namespace
}  // namespace nibble::test
