// SPDX-License-Identifier: MIT
// What is counted is exact, what is measured is there; no speed is asserted.
#include <gtest/gtest.h>

#include <cmath>

#include "core/thread_pool.h"
#include "formats/weights.h"
#include "generate/generator.h"
#include "measure/bench_ceilings.h"
#include "measure/bench_peak.h"
#include "measure/bench_random.h"
#include "measure/bench_work.h"
#include "quant/nvfp4.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

TEST(Quantiles, InterpolateBetweenNeighbours) {
  EXPECT_EQ(quantiles({4}).median, 4);
  EXPECT_EQ(quantiles({4}).p10, 4);
  const Quantiles q = quantiles({30, 10, 20, 0, 40, 50, 60, 70, 80, 90, 100});
  EXPECT_DOUBLE_EQ(q.p10, 10);
  EXPECT_DOUBLE_EQ(q.median, 50);
  EXPECT_DOUBLE_EQ(q.p90, 90);
  EXPECT_DOUBLE_EQ(quantiles({1, 2}).median, 1.5);
  EXPECT_THROW(quantiles({}), InternalError);
}

class ForwardWork : public testing::TestWithParam<Config> {};
INSTANTIATE_TEST_SUITE_P(Families, ForwardWork,
                         testing::Values(toy_config(), toy_qwen2_config(), toy_llama_config()));

TEST_P(ForwardWork, CountsByHand) {
  const auto backend = make_cpu_backend(1);
  const Config c = GetParam();
  const double matrices = double(c.L * (c.qkv_rows() * c.C + c.C * c.Hq * c.D + 3 * c.F * c.C));
  const int64_t of_heads = (c.qk_norm ? 2 * c.D : 0) + (c.qkv_bias ? c.qkv_rows() : 0);
  const double head = double(c.V * c.C);
  const double norms = 4.0 * double(c.L * (2 * c.C + of_heads) + c.C);  // and biases
  const auto kv = [&](int64_t keys) { return double(c.L * 2 * keys * c.Hkv * c.D) * 2; };

  const ToyModel dense = load_toy(*backend, c);
  const Work one = forward_work(dense.model, 1, 9, DType::bf16);
  EXPECT_DOUBLE_EQ(one.bytes, 4 * (matrices + head) + norms + kv(10) + 4.0 * double(c.C));
  EXPECT_DOUBLE_EQ(one.flops, 2 * (matrices + head) + double(c.L) * 4 * 10 * double(c.Hq * c.D));
  // Eight tokens at once: the weights are read once, the head is computed once.
  const Work eight = forward_work(dense.model, 8, 0, DType::bf16);
  EXPECT_DOUBLE_EQ(eight.bytes, 4 * (matrices + head) + norms + kv(8) + 8 * 4.0 * double(c.C));
  EXPECT_DOUBLE_EQ(eight.flops,
                   2 * (8 * matrices + head) + double(c.L) * 4 * 36 * double(c.Hq * c.D));

  // Five sequences at once: their own keys, rows and logits, the same weights.
  const Work five = forward_work(dense.model, 1, 9, DType::bf16, 5);
  EXPECT_DOUBLE_EQ(five.bytes, 4 * (matrices + head) + norms + 5 * kv(10) + 5 * 4.0 * double(c.C));
  EXPECT_DOUBLE_EQ(five.flops, 5 * one.flops);

  LoadOptions nvfp4;
  nvfp4.recipe = Recipe::nvfp4;
  const ToyModel packed = load_toy(*backend, c, nvfp4);
  EXPECT_DOUBLE_EQ(forward_work(packed.model, 1, 9, DType::bf16).bytes,
                   (matrices + head) * (0.5 + 1.0 / 16) + norms + kv(10) + 4.0 * double(c.C));
}

TEST(Ceilings, AreMeasured) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    EXPECT_GT(read_bandwidth(pool, 16 << 20, 2), 1e6);
    EXPECT_GT(fma_peak(pool, 1), 1e6);
  }
}

TEST(Ceilings, OfABackend) {
  const auto backend = make_cpu_backend(2);
  EXPECT_GT(copy_bandwidth(*backend, 4 << 20, 1), 1e6);
  EXPECT_GT(matrix_peak(*backend, 64, 1), 1e6);
  EXPECT_EQ(copy_size_that_fits(*backend, 1 << 20), size_t(1) << 20);
  EXPECT_EQ(matrix_size_that_fits(*backend, 512), 512);
}

TEST(RandomWeights, AreTheSameHoweverTheyAreRead) {
  const auto source = make_random_source(toy_config(), 7, 2),
             alone = make_random_source(toy_config(), 7, 1);
  const auto other = make_random_source(toy_config(), 8, 2);
  size_t different = 0;
  for (const TensorInfo& t : source->tensors()) {
    std::vector<std::byte> whole(t.n_bytes), parts(t.n_bytes), else_(t.n_bytes);
    source->read(t, 0, whole);
    for (size_t at = 0; at < parts.size(); at += 37) {
      const size_t n = std::min<size_t>(37, parts.size() - at);
      alone->read(alone->at(t.name), at, std::span(parts).subspan(at, n));
    }
    EXPECT_EQ(whole, parts) << t.name;
    other->read(other->at(t.name), 0, else_);
    different += whole != else_;
  }
  EXPECT_GT(different, source->tensors().size() / 2);
}

TEST(RandomWeights, AreOfTheSizeOfATrainedModel) {
  const Config c = toy_config();
  const auto source = make_random_source(c, 1, 2);
  const WeightIndex index(*source);
  const LogicalTensor& t = index.at("model.layers.1.mlp.down_proj.weight");
  ASSERT_TRUE(t.packed());
  std::vector<uint8_t> codes(size_t(t.numel() / 2)), scales(size_t(t.numel() / 16));
  read_nvfp4_rows(*source, t, 0, t.rows, codes.data(), scales.data());
  std::vector<float> x(size_t(t.numel()));
  dequantize_rows(codes.data(), scales.data(), t.rows, t.cols, 1.0f, x.data());
  double squares = 0;
  for (const float v : x) squares += double(v) * double(v);
  // 1/sqrt(in); a scale has three bits, and every second block has the next one.
  EXPECT_NEAR(std::sqrt(squares / double(x.size()) * double(t.cols)), 1.0, 0.15);

  const auto backend = make_cpu_backend(1);
  const Model model = load_model(*backend, c, *source, {});
  Engine engine(*backend, model, {32, 0, DType::f32, DType::f32, DType::f32, Activations::none});
  GenerateOptions g;
  g.max_tokens = 8;
  const GenerateResult r = generate(engine, std::vector<int32_t>{1, 2, 3}, g);
  EXPECT_EQ(r.reason, FinishReason::length);
}

}  // namespace
}  // namespace nibble::test
