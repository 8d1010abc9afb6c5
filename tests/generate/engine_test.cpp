// SPDX-License-Identifier: MIT
// The ways to feed a sequence agree, on every backend and for every kind of activations, and a
// chunk on a non-empty cache is causal.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/recording_backend.h"
#include "generate/generator.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

struct EngineCase {
  BackendCase backend;
  Activations activations;
  DType cache;
  bool packed;
  Config config = toy_config();
};

std::vector<EngineCase> engine_cases() {
  const auto backends = backend_cases();
  std::vector<EngineCase> cases;
  cases.push_back({backends[0], Activations::none, DType::f64, true});
  const BackendCase& cpu = backends[1];
  cases.push_back({cpu, Activations::none, DType::f32, false});
  cases.push_back({cpu, Activations::none, DType::f32, true});
  cases.push_back({cpu, Activations::int8, DType::bf16, true});
  cases.push_back({cpu, Activations::int8, DType::f16, true});
  cases.push_back({cpu, Activations::nvfp4, DType::f32, true});
  cases.push_back({cpu, Activations::none, DType::f8_e4m3, true});
  cases.push_back({backends[0], Activations::none, DType::f8_e4m3, true});
  BackendCase bf16 = cpu;
  bf16.name = "cpu_bf16";
  bf16.compute = DType::bf16;
  cases.push_back({bf16, Activations::none, DType::bf16, true});
  BackendCase f16 = cpu;
  f16.name = "cpu_f16";
  f16.compute = DType::f16;
  cases.push_back({f16, Activations::int8, DType::f16, true});
  // Key biases of 145 in all of them, and no norms.
  const size_t of_one_family = cases.size();
  for (size_t i = 0; i < of_one_family; ++i) {
    cases.push_back(cases[i]);
    cases.back().config = toy_qwen2_config();
  }
  cases.push_back(cases[2]);
  cases.back().config = toy_llama_config();
  return cases;
}

class EngineModes : public testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    const EngineCase& p = GetParam();
    backend_ = p.backend.make();
    LoadOptions load;
    load.dtype = p.backend.weights;
    if (p.packed) load.recipe = Recipe::nvfp4;
    toy_ = load_toy(*backend_, p.config, load);
  }
  Engine make(int64_t chunk) {
    const EngineCase& p = GetParam();
    return Engine(*backend_, toy_.model,
                  {256, chunk, p.backend.compute, p.backend.stat, p.cache, p.activations});
  }
  std::vector<float> logits_after(Engine& e, std::span<const int32_t> tokens) {
    const auto l = e.extend(tokens);
    return {l.begin(), l.end()};
  }

  std::unique_ptr<Backend> backend_;
  ToyModel toy_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Chunked attention in the reference follows one formula per query, and the CPU backend promises
// rows that do not depend on their neighbours: so equality is exact, not approximate.
TEST_P(EngineModes, ChunkSizesGiveTheSameLogitsBitForBit) {
  const auto prompt = random_tokens(41, toy_.model.config.V, 3);
  Engine whole = make(0);
  const auto want = logits_after(whole, prompt);
  for (int64_t chunk : {1, 2, 3, 7, 16, 40, 41, 64}) {
    Engine e = make(chunk);
    EXPECT_TRUE(same_bits(logits_after(e, prompt), want)) << "chunk " << chunk;
  }
}

TEST_P(EngineModes, EveryModeGeneratesTheSameIds) {
  const auto prompt = random_tokens(23, toy_.model.config.V, 4);
  GenerateOptions o;
  o.max_tokens = 24;
  o.check_collapse = false;
  Engine whole = make(0);
  const auto want = generate(whole, prompt, o).ids;
  ASSERT_EQ(want.size(), 24u);
  for (int64_t chunk : {1, 5, 512}) {
    Engine e = make(chunk);
    EXPECT_EQ(generate(e, prompt, o).ids, want) << "chunk " << chunk;
  }
  o.replay = true;
  Engine replay = make(0);
  EXPECT_EQ(generate(replay, prompt, o).ids, want) << "replay";
}

// A second turn on a cache that holds the first one, against a fresh engine fed everything.
TEST_P(EngineModes, PersistentCacheEqualsFreshConversation) {
  const auto first = random_tokens(19, toy_.model.config.V, 5);
  const auto second = random_tokens(13, toy_.model.config.V, 6);
  GenerateOptions o;
  o.max_tokens = 8;
  o.check_collapse = false;
  Engine persistent = make(0);
  const auto reply = generate(persistent, first, o).ids;
  std::vector<int32_t> rest(reply.begin() + (persistent.length() - int64_t(first.size())),
                            reply.end());
  rest.insert(rest.end(), second.begin(), second.end());
  const auto second_reply = generate(persistent, rest, o).ids;

  std::vector<int32_t> all(first);
  all.insert(all.end(), reply.begin(), reply.end());
  all.insert(all.end(), second.begin(), second.end());
  Engine fresh = make(0);
  EXPECT_EQ(generate(fresh, all, o).ids, second_reply);
}

// The second turn is one chunk on a non-empty cache: changing its last token must not change the
// logits of the tokens before it.
TEST_P(EngineModes, ChunkOnNonEmptyCacheIsCausal) {
  const auto first = random_tokens(9, toy_.model.config.V, 7);
  auto second = random_tokens(11, toy_.model.config.V, 8);
  const size_t V = size_t(toy_.model.config.V);
  Engine a = make(0), b = make(0);
  a.extend(first);
  b.extend(first);
  const auto before = a.extend_all(second);
  second.back() = (second.back() + 1) % int32_t(V);
  const auto after = b.extend_all(second);
  const size_t unchanged = (second.size() - 1) * V;
  EXPECT_EQ(std::memcmp(before.data(), after.data(), unchanged * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(before.data() + unchanged, after.data() + unchanged, V * sizeof(float)), 0);
}

TEST_P(EngineModes, TruncateForgets) {
  const auto prompt = random_tokens(20, toy_.model.config.V, 9);
  const auto other = random_tokens(6, toy_.model.config.V, 10);
  Engine a = make(0), b = make(0);
  a.extend(prompt);
  a.truncate(12);
  EXPECT_EQ(a.length(), 12);
  b.extend(std::span(prompt).first(12));
  EXPECT_TRUE(same_bits(logits_after(a, other), logits_after(b, other)));
}

std::string engine_case_name(const testing::TestParamInfo<EngineCase>& info) {
  return info.param.backend.name + "_" + std::string(activations_name(info.param.activations)) +
         "_" + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(All, EngineModes, testing::ValuesIn(engine_cases()), engine_case_name);

TEST(Engine, ErrorsSayWhatIsWrong) {
  RefBackend<double> backend;
  ToyModel toy =
      load_toy(backend, toy_config(), {.recipe = {}, .head_recipe = {}, .dtype = DType::f64});
  const EngineOptions o{8, 0, DType::f64, DType::f64, DType::f64, Activations::none};
  Engine e(backend, toy.model, o);
  EXPECT_THROW(e.extend({}), UsageError);
  EXPECT_THROW(e.extend(std::vector<int32_t>{160}), UsageError);
  EXPECT_THROW(e.extend(std::vector<int32_t>{-1}), UsageError);
  EXPECT_THROW(e.extend(random_tokens(9, 160, 1)), UsageError);
  EXPECT_EQ(e.length(), 0);  // a refused call leaves nothing behind
  for (const int64_t context :
       {int64_t(513), int64_t(0), int64_t(-1), INT64_MAX, INT64_MAX / 2 + 1}) {
    EngineOptions bad = o;
    bad.context = context;
    EXPECT_THROW(Engine(backend, toy.model, bad), UsageError) << context;
  }
}

}  // namespace
}  // namespace nibble::test
