// SPDX-License-Identifier: MIT
// The one list of parameters and the one list of tensors in memory agree.
#include "model/params.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/grads.h"
#include "model/weights.h"
#include "support/ref_backend.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

Weights measured_weights(const Config& c) {
  WeightLayout layout;
  layout.linear.resize(size_t(c.L) * kBlockLinears, {DType::f32});
  layout.head = {DType::f32};
  Arena arena("weights");
  const RefBackend<double> backend;
  return make_weights(arena, backend, c, layout);
}

class ParamsOf : public testing::TestWithParam<Config> {};
INSTANTIATE_TEST_SUITE_P(Families, ParamsOf,
                         testing::Values(toy_config(), toy_qwen2_config(), toy_llama_config()),
                         [](const auto& i) -> std::string {
                           return i.param.qk_norm ? "Qwen3" : i.param.qkv_bias ? "Qwen2" : "Llama";
                         });

TEST_P(ParamsOf, StackedParametersFillTheirSlotWithoutGapOrOverlap) {
  const Config c = GetParam();
  Weights w = measured_weights(c);
  std::map<const LinearWeight*, int64_t> filled;
  std::map<const Tensor*, int64_t> tensors;
  for (const ParamSpec& p : parameter_table(c)) {
    const SlotRef slot = slot_of(w, p);
    ASSERT_NE(bool(slot.tensor), bool(slot.linear)) << p.name;
    if (slot.tensor) {
      EXPECT_EQ(p.row_offset, tensors[slot.tensor]) << p.name;
      tensors[slot.tensor] += p.shape[0];
    } else {
      EXPECT_EQ(p.row_offset, filled[slot.linear]) << p.name;
      EXPECT_EQ(p.shape[1], slot.linear->in) << p.name;
      filled[slot.linear] += p.shape[0];
    }
  }
  for (const auto& [linear, rows] : filled) EXPECT_EQ(rows, linear->out);
  EXPECT_EQ(filled.size(), size_t(c.L) * kBlockLinears + 1);  // and the head
  for (const auto& [tensor, rows] : tensors) EXPECT_EQ(rows, tensor->dim(0));
  const size_t vectors = 2 + (c.qk_norm ? 2 : 0) + (c.qkv_bias ? 1 : 0);
  EXPECT_EQ(tensors.size(), size_t(c.L) * vectors + 2);
}

TEST_P(ParamsOf, EveryTensorOfABlockIsMadeOfParametersAndTheOtherWayRound) {
  const Config c = GetParam();
  std::set<ParamSlot> in_memory, in_files;
  const Weights w = measured_weights(c);
  for (const auto& m : BlockWeights::vectors()) {
    if (w.block[0].*m.at) in_memory.insert(m.slot);
  }
  for (const auto& m : BlockGrads::linears()) in_memory.insert(m.slot);
  for (const BlockParam& p : block_params(c)) in_files.insert(p.slot);
  EXPECT_EQ(in_memory, in_files);
}

TEST(Params, ShapesOfSlots) {
  const Config c = toy_config(), q = toy_qwen2_config();
  EXPECT_EQ(slot_shape(c, ParamSlot::qkv), (std::vector<int64_t>{(c.Hq + 2 * c.Hkv) * c.D, c.C}));
  EXPECT_EQ(slot_shape(c, ParamSlot::gate_up), (std::vector<int64_t>{2 * c.F, c.C}));
  EXPECT_EQ(slot_shape(c, ParamSlot::q_norm), (std::vector<int64_t>{c.D}));
  EXPECT_EQ(slot_shape(q, ParamSlot::qkv_bias), (std::vector<int64_t>{q.qkv_rows()}));
  EXPECT_TRUE(slot_shape(c, ParamSlot::qkv_bias).empty());
  EXPECT_TRUE(slot_shape(q, ParamSlot::q_norm).empty());
  EXPECT_TRUE(slot_shape(c, ParamSlot::head).empty());  // not of a block
}

TEST(Params, NamesOfLinearLayers) {
  EXPECT_EQ(linear_layer_names(),
            (std::vector<std::string_view>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                           "up_proj", "down_proj"}));
}

}  // namespace
}  // namespace nibble::test
