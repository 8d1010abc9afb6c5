// SPDX-License-Identifier: MIT
// A decode plan says what forward does: every op of a step is listed and held against the plan's
// tensors. A backend that runs plans as one launch relies on nothing else.
#include <gtest/gtest.h>

#include "backend/forwarding_backend.h"
#include "generate/engine.h"
#include "model/decoder.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

using Places = std::vector<const void*>;

const void* place(const Tensor& t) { return t.data; }
const void* place(const LinearWeight& w) { return w.is_packed() ? w.packed.data : w.dense.data; }

// Keeps the plan of a step, and the ops its plain body consists of, with what they read and write.
class OpList final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  struct Op {
    std::string name;
    Places with;
    bool operator==(const Op&) const = default;
  };
  std::vector<Op> ops;
  std::optional<DecodePlan> plan;
  double eps = 0;
  RopeFrequencies frequencies;
  std::vector<Activations> activations;

 private:
  void do_decode_step(const DecodePlan& p, const std::function<void()>& plain) override {
    plan = p;
    ops.clear(), activations.clear();
    plain();
  }
  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    ops.push_back({"embed", {place(out), place(table), place(ids)}});
    inner_.embed(out, table, ids);
  }
  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    ops.push_back({"rope_table", {place(table), place(positions)}});
    frequencies = f;
    inner_.rope_table(table, positions, f);
  }
  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double e) override {
    ops.push_back({"norm", {place(w)}});
    eps = e;
    inner_.rms_norm(out, rstd, x, w, e);
  }
  void do_add_rms_norm(Tensor out, Tensor rstd, Tensor sum, Tensor a, Tensor b, Tensor w,
                       double e) override {
    ops.push_back({"norm", {place(w)}});
    EXPECT_EQ(e, eps);
    inner_.add_rms_norm(out, rstd, sum, a, b, w, e);
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations a) override {
    ops.push_back({"linear", {place(w)}});
    activations.push_back(a);
    last_linear = place(out);
    inner_.linear(out, x, w, a);
  }
  void do_linear_swiglu(Tensor act, Tensor gate_up, Tensor x, const LinearWeight& w,
                        Activations a) override {
    ops.push_back({"linear", {place(w)}});
    activations.push_back(a);
    inner_.linear_swiglu(act, gate_up, x, w, a);
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double e) override {
    ops.push_back({"heads",
                   {place(kv.k), place(kv.v), place(params.q_norm), place(params.k_norm),
                    place(params.bias), place(table), place(slots)}});
    EXPECT_EQ(e, eps);
    inner_.split_heads(out, kv, qkv, params, table, slots, e);
  }
  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    ops.push_back({"attention", {place(kv.k), place(kv.v), place(sequences)}});
    inner_.attention(out, lse, q, kv, sequences);
  }

 public:
  const void* last_linear = nullptr;
};

// The ops a plan stands for.
std::vector<OpList::Op> ops_of(const DecodePlan& p) {
  std::vector<OpList::Op> ops = {{"embed", {place(p.x), place(p.embed), place(p.ids)}},
                                 {"rope_table", {place(p.rope), place(p.positions)}}};
  for (const DecodeLayer& l : p.layers) {
    ops.push_back({"norm", {place(l.attn_norm)}});
    ops.push_back({"linear", {place(l.qkv)}});
    ops.push_back({"heads",
                   {place(l.kv.k), place(l.kv.v), place(l.heads.q_norm), place(l.heads.k_norm),
                    place(l.heads.bias), place(p.rope), place(p.slots)}});
    ops.push_back({"attention", {place(l.kv.k), place(l.kv.v), place(p.sequences)}});
    ops.push_back({"linear", {place(l.attn_out)}});
    ops.push_back({"norm", {place(l.ffn_norm)}});
    ops.push_back({"linear", {place(l.gate_up)}});
    ops.push_back({"linear", {place(l.down)}});
  }
  ops.push_back({"norm", {place(p.final_norm)}});
  ops.push_back({"linear", {place(p.head)}});
  return ops;
}

class DecodePlanOf : public testing::TestWithParam<Config> {};
INSTANTIATE_TEST_SUITE_P(Families, DecodePlanOf,
                         testing::Values(toy_config(), toy_qwen2_config(), toy_llama_config()));

TEST_P(DecodePlanOf, SaysWhatForwardDoes) {
  const auto backend = make_cpu_backend(2);
  OpList list(*backend);
  for (const Recipe recipe : {Recipe::nvfp4, Recipe::bf16}) {
    LoadOptions load;
    load.recipe = recipe;
    const ToyModel toy = load_toy(*backend, GetParam(), load);
    for (const int64_t n : {1, 3}) {
      BatchEngine engine(list, toy.model, {64, 0, DType::f32, DType::f32, DType::bf16}, n);
      std::vector<DecodeStep> steps;
      for (int64_t s = 0; s < n; ++s) {
        engine.feed(s, random_tokens(5, toy.model.config.V, uint64_t(s)));
        steps.push_back({s, 7, {}, 0});
      }
      list.plan.reset();
      engine.step(steps);
      ASSERT_TRUE(list.plan);
      const DecodePlan& plan = *list.plan;
      EXPECT_EQ(list.ops, ops_of(plan)) << n << " sequences";
      EXPECT_EQ(list.eps, plan.eps);
      EXPECT_EQ(list.frequencies, plan.frequencies);
      EXPECT_EQ(list.last_linear, place(plan.logits));
      for (const Activations a : list.activations) EXPECT_EQ(a, plan.activations);
      EXPECT_EQ(plan.layers.size(), size_t(toy.model.config.L));
      EXPECT_EQ(plan.x.dim(0), n);
      EXPECT_EQ(plan.q_heads, toy.model.config.Hq);
      EXPECT_EQ(plan.kv_heads, toy.model.config.Hkv);
      EXPECT_EQ(plan.head_width, toy.model.config.D);
    }
  }
}

// Weights that exist one layer at a time cannot be promised all at once.
TEST(DecodePlan, IsNotUsedWhereWeightsAreMadeOnTheWay) {
  const auto backend = make_cpu_backend(2);
  OpList list(*backend);
  ToyModel toy = load_toy(*backend, toy_config());
  int asked = 0;
  toy.model.weights_needed = [&](int64_t) { ++asked; };
  Engine engine(list, toy.model, {64, 0, DType::f32, DType::f32, DType::bf16});
  engine.feed(random_tokens(5, toy.model.config.V, 1));
  engine.step(3, {}, 0);
  EXPECT_FALSE(list.plan);
  EXPECT_EQ(asked, 2 * toy.model.config.L);
}

// A backend with a better way is asked for it and its results are taken.
class OwnWay final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  int steps = 0;

 private:
  DecodeWay do_decode_way(const DecodePlan&) const override { return {true, "its own way"}; }
  void do_decode_step(const DecodePlan& p, const std::function<void()>&) override {
    ++steps;
    std::vector<float> logits(size_t(p.logits.numel()), 0.0f);
    logits[5] = 1;
    upload(p.logits, logits.data());
  }
};

TEST(DecodePlan, ABackendMayHaveItsOwnWay) {
  const auto backend = make_cpu_backend(1);
  OwnWay own(*backend);
  const ToyModel toy = load_toy(*backend, toy_config());
  Engine engine(own, toy.model, {64, 0, DType::f32, DType::f32, DType::bf16});
  EXPECT_TRUE(engine.decode_way().one_launch);
  EXPECT_EQ(engine.decode_way().text, "its own way");
  engine.feed(random_tokens(5, toy.model.config.V, 1));
  EXPECT_EQ(engine.step(3, {}, 0), 5);
  EXPECT_EQ(own.steps, 1);
}

}  // namespace
}  // namespace nibble::test
