// SPDX-License-Identifier: MIT
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace nibble {
namespace {

class TensorTest : public ::testing::Test {
 protected:
  TensorTest() : data_(24) {
    std::iota(data_.begin(), data_.end(), 0.0f);
    t_ = make_tensor(data_.data(), DType::f32, {4, 6});
  }
  std::vector<float> data_;
  Tensor t_;
};

TEST_F(TensorTest, Sizes) {
  EXPECT_EQ(t_.numel(), 24);
  EXPECT_EQ(t_.bytes(), 96u);
  EXPECT_EQ(t_.rows(), 4);
  EXPECT_EQ(t_.cols(), 6);
  EXPECT_EQ(t_.inner(), 6);
  EXPECT_TRUE(t_.contiguous());
  EXPECT_EQ(t_.describe(), "f32[4, 6]");
  EXPECT_TRUE(bool(t_));
  EXPECT_FALSE(bool(Tensor{}));
  EXPECT_EQ(Tensor{}.cols(), 0);
  EXPECT_EQ(Tensor{}.rows(), 0);
  const Tensor cube = make_tensor(nullptr, DType::bf16, {2, 3, 4});
  EXPECT_EQ(cube.rows(), 6);
  EXPECT_EQ(cube.cols(), 4);
  EXPECT_EQ(cube.bytes(), 48u);
  const Tensor none = make_tensor(nullptr, DType::f32, {0, 5});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.rows(), 0);
}

TEST_F(TensorTest, TypedAccess) {
  EXPECT_EQ(t_.row<float>(2)[1], 13.0f);
  EXPECT_THROW(t_.as<int32_t>(), InternalError);
  EXPECT_THROW(t_.as<double>(), InternalError);
}

TEST_F(TensorTest, ViewKeepsElementsAndCount) {
  const Tensor v = t_.view({2, 3, 4});
  EXPECT_EQ(v.row<float>(1)[0], 12.0f);
  EXPECT_EQ(v.rank, 3);
  EXPECT_THROW(t_.view({5, 5}), InternalError);
  EXPECT_THROW(t_.view({1, 1, 1, 4, 6}), InternalError) << "rank 5";
}

TEST_F(TensorTest, ColumnsAreStridedAndKeepTheirRows) {
  const Tensor c = t_.columns(2, 3);
  EXPECT_FALSE(c.contiguous());
  EXPECT_EQ(c.row<float>(0)[0], 2.0f);
  EXPECT_EQ(c.row<float>(3)[2], 22.0f);
  EXPECT_THROW(c.view({12}), InternalError) << "a strided view has no flat form";
  const Tensor heads = t_.columns(0, 4).split_inner({4, 2, 2});
  EXPECT_EQ(heads.row<float>(1)[3], 9.0f);
  EXPECT_EQ(heads.row_stride, 6);
  EXPECT_THROW(c.split_inner({2, 6}), InternalError);
  EXPECT_THROW(t_.columns(4, 3), InternalError);
  EXPECT_THROW(t_.columns(-1, 2), InternalError);
  EXPECT_THROW(make_tensor(nullptr, DType::f32, {2, 2, 2}).columns(0, 1), InternalError);
  EXPECT_TRUE(t_.slice(0, 1).columns(0, 2).contiguous()) << "one row has no stride";
}

TEST_F(TensorTest, SliceOfRows) {
  const Tensor s = t_.slice(1, 2);
  EXPECT_EQ(s.dim(0), 2);
  EXPECT_EQ(s.row<float>(0)[0], 6.0f);
  EXPECT_TRUE(s.contiguous());
  EXPECT_EQ(t_.columns(2, 2).slice(3, 1).row<float>(0)[0], 20.0f);
  EXPECT_EQ(t_.slice(4, 0).numel(), 0);
  EXPECT_THROW(t_.slice(3, 2), InternalError);
  EXPECT_THROW(Tensor{}.slice(0, 0), InternalError);
}

TEST_F(TensorTest, MeasuringTensorsHaveNoMemoryAtAnyView) {
  const Tensor m = make_tensor(nullptr, DType::f32, {4, 6});
  EXPECT_EQ(m.slice(2, 1).data, nullptr);
  EXPECT_EQ(m.columns(2, 1).data, nullptr);
}

TEST_F(TensorTest, SameShape) {
  EXPECT_TRUE(same_shape(t_, make_tensor(nullptr, DType::bf16, {4, 6})));
  EXPECT_FALSE(same_shape(t_, t_.view({4, 6, 1}))) << "rank counts";
  EXPECT_FALSE(same_shape(t_, t_.view({6, 4})));
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(dtype_bytes(DType::c128), 16u);
  EXPECT_EQ(dtype_bytes(DType::boolean), 1u);
  EXPECT_EQ(dtype_bytes(dtype_of<bf16_t>), sizeof(bf16_t));
  EXPECT_EQ(dtype_name(DType::f8_e4m3), "f8_e4m3");
  EXPECT_TRUE(is_float(DType::f8_e4m3));
  EXPECT_FALSE(is_float(DType::u8));
}

}  // namespace
}  // namespace nibble
