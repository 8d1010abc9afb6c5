// SPDX-License-Identifier: MIT
// The KV matrix passes on every backend, and fails when the mask, the cache or the determinism of
// a backend is broken.
#include "eval/kv_matrix.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/forwarding_backend.h"
#include "support/backends.h"
#include "support/toy_model.h"

namespace nibble::test {
namespace {

// Every token of a chunk sees the whole chunk: the predecessor's mistake on a non-empty cache.
class NoMaskInChunk final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 private:
  void do_attention(Tensor out, Tensor, Tensor q, KvView kv, Tensor sequences) override {
    Sequence s;
    inner_.download(&s, sequences);
    Buffer table = inner_.allocate(sizeof(Sequence), "sequence table");
    const Tensor one = make_tensor(table.data(), DType::i32, {1, 4});
    for (int32_t i = 0; i < s.q_len; ++i) {
      const Sequence row{0, 1, s.kv_begin, s.kv_len};
      inner_.upload(one, &row);
      inner_.attention(out.slice(s.q_begin + i, 1), Tensor{}, q.slice(s.q_begin + i, 1), kv, one);
    }
  }
};

// Forgets to write the last token of a chunk into the cache.
class LosesLastKey final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 private:
  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    const int64_t n = k.dim(0);
    if (n > 1) inner_.kv_append(kv, k.slice(0, n - 1), v.slice(0, n - 1), slots.slice(0, n - 1));
    if (n == 1) inner_.kv_append(kv, k, v, slots);
  }
  void do_split_heads(const HeadSlots& out, KvView kv, Tensor qkv, const HeadParams& params,
                      Tensor table, Tensor slots, double eps) override {
    Backend::do_split_heads(out, kv, qkv, params, table, slots, eps);  // which appends
  }
};

// Each call of linear adds a little more than the one before: no two runs are alike.
class Drifts final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 private:
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations a) override {
    inner_.linear(out, x, w, a);
    if (out.dtype == DType::f64) out.as<double>()[0] += 1e-9 * double(++calls_);
  }
  int64_t calls_ = 0;
};

struct Fixture {
  explicit Fixture(const BackendCase& c) : backend(c.make()) {
    LoadOptions load;
    load.dtype = c.weights;
    toy = load_toy(*backend, toy_config(), load);
    options.iterations = 1;
    options.max_tokens = 5;
    options.engine.compute = c.compute;
    options.engine.stat = c.stat;
    options.engine.cache = c.compute;
    first = random_tokens(17, toy.model.config.V, 1);
    second = random_tokens(10, toy.model.config.V, 2);
  }
  KvMatrix run(Backend& be) { return run_kv_matrix(be, toy.model, first, second, options); }

  std::unique_ptr<Backend> backend;
  ToyModel toy;
  KvMatrixOptions options;
  std::vector<int32_t> first, second;
};

bool case_passed(const KvMatrix& m, const std::string& name) {
  for (const KvCase& c : m.cases) {
    if (c.name == name && c.iteration == 1) return c.passed;
  }
  ADD_FAILURE() << "no case " << name;
  return false;
}

TEST(KvMatrix, PassesBitForBitOnEveryBackend) {
  for (const BackendCase& c : backend_cases()) {
    Fixture f(c);
    f.options.iterations = 2;
    const KvMatrix m = f.run(*f.backend);
    EXPECT_TRUE(m.passed()) << c.name;
    EXPECT_EQ(m.logit_diff(), 0) << c.name;
    EXPECT_EQ(m.cases.size(), size_t(m.kinds * m.iterations));
  }
}

TEST(KvMatrix, RunsEveryModeAndReportsEachCaseOnce) {
  Fixture f(backend_cases()[1]);
  f.options.chunks = {1, 3, 7};
  f.options.iterations = 2;
  std::multiset<std::string> seen;
  run_kv_matrix(*f.backend, f.toy.model, f.first, f.second, f.options,
                [&](const KvCase& c) { seen.insert(c.name); });
  const std::set<std::string> expected = {"replay",
                                          "whole",
                                          "chunk-1",
                                          "chunk-3",
                                          "chunk-7",
                                          "token",
                                          "persistent-whole",
                                          "persistent-chunk-1",
                                          "persistent-token",
                                          "persistent-chunk-3",
                                          "persistent-chunk-7",
                                          "generator"};
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), expected);
  for (const std::string& name : expected) EXPECT_EQ(seen.count(name), 2u) << name;
}

TEST(KvMatrix, HoldsWhenSampling) {
  Fixture f(backend_cases()[1]);
  f.options.sample = {.temperature = 0.8, .top_p = 0.9, .seed = 5};
  EXPECT_TRUE(f.run(*f.backend).passed());
}

TEST(KvMatrix, FailsWithoutTheMaskInsideAChunk) {
  Fixture f(backend_cases()[1]);
  NoMaskInChunk broken(*f.backend);
  const KvMatrix m = f.run(broken);
  EXPECT_FALSE(m.passed());
  EXPECT_FALSE(case_passed(m, "token"));
  EXPECT_FALSE(case_passed(m, "chunk-3"));
  EXPECT_FALSE(case_passed(m, "persistent-chunk-7"));
  EXPECT_GT(m.logit_diff(), 0);
}

TEST(KvMatrix, FailsWhenTheCacheLosesATokenOfAChunk) {
  Fixture f(backend_cases()[1]);
  LosesLastKey broken(*f.backend);
  const KvMatrix m = f.run(broken);
  EXPECT_FALSE(m.passed());
  EXPECT_FALSE(case_passed(m, "token"));
}

TEST(KvMatrix, FailsWhenRunsAreNotRepeatable) {
  Fixture f(backend_cases()[0]);
  Drifts broken(*f.backend);
  const KvMatrix m = f.run(broken);
  EXPECT_FALSE(case_passed(m, "replay"));
}

TEST(KvMatrix, AToleranceForgivesLogitsButNeverIds) {
  Fixture f(backend_cases()[0]);
  f.options.max_logit_diff = 1e-2;
  Drifts small(*f.backend);
  const KvMatrix forgiven = f.run(small);
  EXPECT_TRUE(forgiven.passed());
  EXPECT_GT(forgiven.logit_diff(), 0);
  f.options.max_logit_diff = 1e30;
  NoMaskInChunk broken(*f.backend);
  EXPECT_FALSE(f.run(broken).passed());
}

TEST(KvMatrix, RefusesEmptyTurnsAndBadSizes) {
  Fixture f(backend_cases()[1]);
  EXPECT_THROW(run_kv_matrix(*f.backend, f.toy.model, {}, f.second, f.options), UsageError);
  f.options.chunks = {0};
  EXPECT_THROW(f.run(*f.backend), UsageError);
  f.options.chunks = {3};
  f.options.iterations = 0;
  EXPECT_THROW(f.run(*f.backend), UsageError);
}

}  // namespace
}  // namespace nibble::test
