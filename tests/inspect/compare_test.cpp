// SPDX-License-Identifier: MIT
#include "inspect/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/half.h"
#include "formats/safetensors.h"

namespace nibble::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Difference compare(const std::vector<float>& a, const std::vector<float>& b) {
  return compare_values(a, b);
}

TEST(CompareValues, FiguresOfASmallCase) {
  const Difference d = compare({3, 4, 1}, {3, 4, 0});
  EXPECT_DOUBLE_EQ(d.relative_l2, 1.0 / 5.0);
  EXPECT_EQ(d.max_abs, 1);
  EXPECT_EQ(d.max_at, 2);
  EXPECT_DOUBLE_EQ(d.cosine, 25 / (5 * std::sqrt(26.0)));
  EXPECT_FALSE(d.over(0.2));
  EXPECT_TRUE(d.over(0.19));
}

TEST(CompareValues, ZerosAndSpecialValues) {
  EXPECT_EQ(compare({0, 0}, {0, 0}).relative_l2, 0);
  EXPECT_EQ(compare({0, 0}, {0, 0}).cosine, 1);
  EXPECT_TRUE(std::isinf(compare({1, 0}, {0, 0}).relative_l2));
  // A mask's infinity in both is equal; of another sign, or in one alone, it is not.
  EXPECT_EQ(compare({-kInf, 1}, {-kInf, 1}).relative_l2, 0);
  EXPECT_TRUE(compare({kInf, 1}, {-kInf, 1}).over(1e9));
  EXPECT_TRUE(compare({1, 1}, {kInf, 1}).over(1e9));
  const Difference nan = compare({kNan, 1}, {kNan, 1});
  EXPECT_TRUE(nan.over(1e9));
  EXPECT_EQ(nan.a.nan, 1);
  EXPECT_EQ(nan.b.nan, 1);
  EXPECT_EQ(nan.a.inf, 0);
}

TEST(CompareValues, SizesMustAgree) { EXPECT_THROW(compare({1}, {1, 2}), InternalError); }

TEST(RunOrder, IsThatOfTheForward) {
  const std::vector<std::string> order = {"input_ids",
                                          "acts.embed",
                                          "acts.layers.0.attn_norm",
                                          "acts.layers.0.qkv",
                                          "acts.layers.0.out",
                                          "acts.layers.2.attn_norm",
                                          "acts.layers.10.attn_norm",
                                          "acts.final_norm",
                                          "logits",
                                          "loss",
                                          "grad.a",
                                          "grad.b"};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) {
      EXPECT_EQ(runs_before(order[i], order[j]), i < j) << order[i] << " " << order[j];
    }
  }
}

TEST(CompareRecordings, PairsByNameAndReportsWhatIsMissing) {
  const std::vector<Recorded> a = {
      {"logits", {2}, {1, 2}}, {"embed", {2}, {1, 1}}, {"layers.0.out", {3}, {1, 2, 3}}};
  const std::vector<Recorded> b = {
      {"embed", {2}, {1, 1}}, {"layers.0.out", {1, 3}, {1, 2, 3}}, {"final_norm", {1}, {0}}};
  const std::vector<Difference> d = compare_recordings(a, b);
  ASSERT_EQ(d.size(), 4u);
  EXPECT_EQ(d[0].name, "embed");
  EXPECT_FALSE(d[0].over(0));
  EXPECT_EQ(d[1].problem, "shapes [3] and [1, 3]");
  EXPECT_EQ(d[2].name, "final_norm");
  EXPECT_EQ(d[2].problem, "only in the second");
  EXPECT_EQ(d[3].problem, "only in the first");
  EXPECT_EQ(first_over(d, 1.0)->name, "layers.0.out");
  EXPECT_EQ(first_over(std::span(d).first(1), 0), nullptr);
}

TEST(CompareRecordings, FilesOfDifferentTypesAndOrder) {
  const auto dir = std::filesystem::path(testing::TempDir());
  const auto write = [&](const char* name, std::vector<TensorInfo> infos,
                         const std::vector<std::vector<std::byte>>& payload) {
    SafetensorsWriter w(dir / name, std::move(infos));
    for (const auto& p : payload) w.append(p);
    w.finish();
    return open_safetensors(dir / name);
  };
  const auto bytes = [](const auto& values) {
    const auto span = std::as_bytes(std::span(values));
    return std::vector<std::byte>(span.begin(), span.end());
  };
  const auto info = [](const char* name, DType t, std::vector<int64_t> shape) {
    TensorInfo i;
    i.name = name;
    i.dtype = t;
    i.shape = std::move(shape);
    return i;
  };
  const std::vector<float> f = {1, 2, 4};
  const std::vector<double> d = {1, 2, 4};
  const std::vector<bf16_t> h = {to_bf16(1), to_bf16(2), to_bf16(4.5f)};
  const std::vector<int64_t> ids = {7, 8};
  const auto a = write("cmp_a.safetensors",
                       {info("embed", DType::f32, {3}), info("logits", DType::f32, {3}),
                        info("input_ids", DType::i64, {2})},
                       {bytes(f), bytes(f), bytes(ids)});
  const auto b = write("cmp_b.safetensors",
                       {info("input_ids", DType::i64, {2}), info("logits", DType::bf16, {3}),
                        info("embed", DType::f64, {3})},
                       {bytes(ids), bytes(h), bytes(d)});
  const std::vector<Difference> all = compare_recordings(*a, *b);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "input_ids");
  EXPECT_EQ(all[0].relative_l2, 0);
  EXPECT_EQ(all[1].relative_l2, 0);
  EXPECT_EQ(all[2].max_abs, 0.5);
  EXPECT_EQ(first_over(all, 1e-3)->name, "logits");
}

}  // namespace
}  // namespace nibble::test
