// SPDX-License-Identifier: MIT
// The production wiring on complex numbers: a step along the imaginary axis gives derivatives to
// full precision. Here it must agree with differences of the double run, which shows that the
// complex backend computes the same function; the backward pass will be held against it.
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

using Complex = std::complex<double>;

// Loss of two packed sequences, summed over scored rows, with one weight of the model moved.
template <class T>
T toy_loss(RefBackend<T>& backend, Model& model, Activations act) {
  const Config& c = model.config;
  const int64_t n = 7;
  std::vector<int32_t> ids{5, 9, 2, 7, 1, 1, 8}, positions{0, 1, 2, 3, 0, 1, 2},
      rows{0, 1, 2, 3, 4, 5, 6};
  std::vector<int32_t> sequences{0, 4, 0, 4, 4, 3, 4, 3}, targets{9, 2, 7, -1, 1, 8, -1};
  Arena arena("all", backend.allocate(64 << 20, "test"));
  const auto upload = [&](const std::vector<int32_t>& v, std::initializer_list<int64_t> shape) {
    const Tensor t = arena.take(DType::i32, shape);
    backend.upload(t, v.data());
    return t;
  };
  Batch b{upload(ids, {n}), upload(positions, {n}), upload(rows, {n}), upload(sequences, {2, 4}),
          upload(rows, {n})};
  Acts acts = make_acts(arena, c, {n, n, dtype_of<T>, dtype_of<T>, Keep::none});
  forward(backend, c, model.weights, b, acts, kv_of_acts(acts, c), act);
  const Tensor loss = arena.take(dtype_of<T>, {n}), stats = arena.take(dtype_of<T>, {n, 3});
  const Tensor wanted = upload(targets, {n});
  backend.softmax_stats(stats, acts.logits, wanted, 0, Accumulate::no);
  backend.cross_entropy(loss, stats, wanted);
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum += loss.as<T>()[i];
  return sum;
}

// Every dense tensor of the model, by file name.
template <class T>
std::vector<std::pair<std::string, Tensor>> dense_tensors(Model& model) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const ParamSpec& p : parameter_table(model.config)) {
    const SlotRef slot = slot_of(model.weights, p);
    if (slot.tensor) all.emplace_back(p.name, *slot.tensor);
    if (slot.linear && !slot.linear->is_packed()) all.emplace_back(p.name, slot.linear->dense);
  }
  return all;
}

void compare_with_differences(std::optional<Recipe> recipe, Config c = toy_config()) {
  c.L = 2;
  c.V = 24;
  RefBackend<double> real;
  RefBackend<Complex> complex;
  ToyModel a = load_toy(real, c, {.recipe = recipe, .head_recipe = {}, .dtype = DType::f64});
  ToyModel b = load_toy(complex, c, {.recipe = recipe, .head_recipe = {}, .dtype = DType::c128});
  EXPECT_NEAR(toy_loss(real, a.model, Activations::none),
              toy_loss(complex, b.model, Activations::none).real(), 1e-12);
  const auto xs = dense_tensors<double>(a.model);
  const auto zs = dense_tensors<Complex>(b.model);
  ASSERT_EQ(xs.size(), zs.size());
  for (size_t t = 0; t < xs.size(); ++t) {
    const int64_t at = xs[t].second.numel() / 3;
    Complex& z = zs[t].second.as<Complex>()[at];
    const Complex kept_z = z;
    z += Complex(0, 1e-30);
    const double exact = toy_loss(complex, b.model, Activations::none).imag() / 1e-30;
    z = kept_z;
    double& x = xs[t].second.as<double>()[at];
    const double kept = x, h = 1e-5;
    x = kept + h;
    const double up = toy_loss(real, a.model, Activations::none);
    x = kept - h;
    const double down = toy_loss(real, a.model, Activations::none);
    x = kept;
    // Central differences: error h^2 f'''/6 plus rounding eps |f| / h, about 1e-9 here.
    EXPECT_NEAR((up - down) / (2 * h), exact, 1e-6 * (1 + std::abs(exact))) << xs[t].first;
  }
}

TEST(ComplexStep, AgreesWithDifferencesOnDenseWeights) { compare_with_differences(std::nullopt); }
TEST(ComplexStep, AgreesWithDifferencesInEveryFamily) {
  compare_with_differences(std::nullopt, toy_qwen2_config());
  compare_with_differences(std::nullopt, toy_llama_config());
}
TEST(ComplexStep, AgreesWithDifferencesBesidePackedWeights) {
  compare_with_differences(Recipe::nvfp4);
}

}  // namespace
}  // namespace nibble::test
