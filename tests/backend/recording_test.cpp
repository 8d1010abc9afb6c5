// SPDX-License-Identifier: MIT
// Recording names every intermediate in the order of the run and changes nothing.
#include <gtest/gtest.h>

#include "backend/download.h"
#include "backend/recording_backend.h"
#include "model/evaluate.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

TEST(RecordingBackend, NamesIntermediatesAndChangesNothing) {
  RefBackend<double> plain;
  const Config c = toy_config();
  const ToyModel toy = load_toy(plain, c, {.recipe = {}, .head_recipe = {}, .dtype = DType::f64});
  const std::vector<int64_t> ids{3, 1, 4, 1, 5};
  const EvaluateOptions o{DType::f64, DType::f64, Activations::none};
  const Evaluation want = evaluate(plain, toy.model, ids, {}, 1, 5, o);

  std::vector<Recorded> seen;
  RecordingBackend recording(plain, [&](Recorded r) { seen.push_back(std::move(r)); });
  const Evaluation got = evaluate(recording, toy.model, ids, {}, 1, 5, o);
  EXPECT_EQ(got.logits, want.logits);

  ASSERT_EQ(seen.size(), 3 + size_t(c.L) * 10);
  EXPECT_EQ(seen.front().name, "embed");
  EXPECT_EQ(seen[1].name, "layers.0.attn_norm");
  EXPECT_EQ(seen[2].shape, (std::vector<int64_t>{5, c.qkv_rows()}));
  EXPECT_EQ(seen[10].name, "layers.0.out");
  EXPECT_EQ(seen.back().name, "logits");
  EXPECT_EQ(seen.back().values, want.logits);
}

TEST(DownloadFloats, StridedViewsAndEveryFloatType) {
  RefBackend<double> backend;
  float x[6] = {1, 2, 3, 4, 5, 6};
  const Tensor t = make_tensor(x, DType::f32, {2, 3});
  EXPECT_EQ(download_floats(backend, t), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(download_floats(backend, t.columns(1, 2)), (std::vector<float>{2, 3, 5, 6}));
  bf16_t b[2] = {to_bf16(1.5f), to_bf16(-2)};
  EXPECT_EQ(download_floats(backend, make_tensor(b, DType::bf16, {2})),
            (std::vector<float>{1.5f, -2}));
  f16_t h[2] = {to_f16(0.25f), to_f16(-7)};
  EXPECT_EQ(download_floats(backend, make_tensor(h, DType::f16, {2})),
            (std::vector<float>{0.25f, -7}));
  std::complex<double> z[1] = {{3, 9}};
  EXPECT_EQ(download_floats(backend, make_tensor(z, DType::c128, {1})), (std::vector<float>{3}));
  int32_t i[1] = {1};
  EXPECT_THROW(download_floats(backend, make_tensor(i, DType::i32, {1})), InternalError);
}

}  // namespace
}  // namespace nibble::test
