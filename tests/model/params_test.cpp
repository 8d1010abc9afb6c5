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

TEST(Params, StackedParametersFillTheirSlotWithoutGapOrOverlap) {
  const Config c = toy_config();
  Weights w = measured_weights(c);
  std::map<const LinearWeight*, int64_t> filled;
  std::set<const Tensor*> tensors;
  for (const ParamSpec& p : parameter_table(c)) {
    const SlotRef slot = slot_of(w, p);
    ASSERT_NE(bool(slot.tensor), bool(slot.linear)) << p.name;
    if (slot.tensor) {
      EXPECT_TRUE(tensors.insert(slot.tensor).second) << p.name;
      EXPECT_EQ(slot.tensor->numel(), p.numel()) << p.name;
    } else {
      EXPECT_EQ(p.row_offset, filled[slot.linear]) << p.name;
      EXPECT_EQ(p.shape[1], slot.linear->in) << p.name;
      filled[slot.linear] += p.shape[0];
    }
  }
  for (const auto& [linear, rows] : filled) EXPECT_EQ(rows, linear->out);
  EXPECT_EQ(filled.size(), size_t(c.L) * kBlockLinears + 1);  // and the head
  EXPECT_EQ(tensors.size(), size_t(c.L) * BlockWeights::norms().size() + 2);
}

TEST(Params, EveryTensorOfABlockIsMadeOfParametersAndTheOtherWayRound) {
  const Config c = toy_config();
  std::set<ParamSlot> in_memory, in_files;
  for (const auto& m : BlockWeights::norms()) in_memory.insert(m.slot);
  for (const auto& m : BlockGrads::linears()) in_memory.insert(m.slot);
  for (const BlockParam& p : block_params(c)) in_files.insert(p.slot);
  EXPECT_EQ(in_memory, in_files);
  EXPECT_EQ(slot_shape(c, ParamSlot::qkv), (std::vector<int64_t>{(c.Hq + 2 * c.Hkv) * c.D, c.C}));
  EXPECT_EQ(slot_shape(c, ParamSlot::gate_up), (std::vector<int64_t>{2 * c.F, c.C}));
  EXPECT_EQ(slot_shape(c, ParamSlot::q_norm), (std::vector<int64_t>{c.D}));
  EXPECT_TRUE(slot_shape(c, ParamSlot::head).empty());  // not of a block
}

TEST(Params, NamesOfLinearLayers) {
  EXPECT_EQ(linear_layer_names(),
            (std::vector<std::string_view>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                           "up_proj", "down_proj"}));
}

}  // namespace
}  // namespace nibble::test
