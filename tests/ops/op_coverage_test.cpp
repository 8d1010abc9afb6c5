// SPDX-License-Identifier: MIT
// The record that docs/ops-support.md is made of says what was called, no more.
#include "support/op_coverage.h"

#include "ops/op_support.h"
#include "support/coverage_backend.h"

namespace nibble::test {
namespace {

Tensor view(DType type, std::initializer_list<int64_t> shape, uintptr_t address = 4096) {
  return make_tensor(reinterpret_cast<void*>(address), type, shape);
}

TEST(OpCoverage, CallsOfTheSameTypesBecomeOneLineWithTheRangeOfTheirSizes) {
  OpCoverage coverage;
  const auto call = [](int64_t n, const Tensor& x) {
    return OpCall("op").act("x", x).typed("w", {}).size("N", n);
  };
  coverage.add(call(3, view(DType::bf16, {3, 8})));
  coverage.add(call(1, view(DType::bf16, {1, 8})));
  coverage.add(call(7, view(DType::bf16, {7, 16}).columns(8, 8)));
  EXPECT_EQ(coverage.lines(),
            "{\"op\": \"op\", \"types\": {\"act\": \"bf16\", \"w\": \"none\"}, "
            "\"sizes\": {\"N\": [1, 7]}, \"strided\": [\"x\"], \"unaligned\": []}\n");
  coverage.add(call(2, view(DType::f32, {2, 8})));
  const std::string two = coverage.lines();
  EXPECT_EQ(std::count(two.begin(), two.end(), '\n'), 2);
}

TEST(OpCoverage, RowsThatDoNotBeginAtWholeVectorsAreUnaligned) {
  const auto unaligned = [](const Tensor& t) { return OpCall("op").act("x", t).unaligned.size(); };
  EXPECT_EQ(unaligned(view(DType::f32, {2, 4})), 0u);
  EXPECT_EQ(unaligned(view(DType::f32, {2, 5})), 1u);  // the second row
  EXPECT_EQ(unaligned(view(DType::f32, {1, 5})), 0u);
  EXPECT_EQ(unaligned(view(DType::f32, {2, 4}, 4100)), 1u);
}

TEST(OpCoverage, OperandsOfTheComputeTypeAreNotNamed) {
  const auto types = [](DType out) {
    return OpCall("op")
        .act("x", view(DType::bf16, {1, 1}))
        .like_act("out", view(out, {1, 1}))
        .types;
  };
  EXPECT_EQ(types(DType::bf16).count("out"), 0u);
  EXPECT_EQ(types(DType::f32).at("out"), "f32");
}

TEST(OpCoverage, AnOpThatWasRefusedIsNotNoted) {
  const auto backend = noting_ops(make_tested_backend(1));
  const auto lines = [] { return OpCoverage::instance().lines(); };
  Operand a(DType::f32, {2, 77}), b(DType::f32, {2, 77}), narrow(DType::f32, {2, 76});
  a.normal(1), b.normal(2);
  const std::string before = lines();
  EXPECT_THROW(backend->add(narrow.cpu, a.cpu, b.cpu), InternalError);
  EXPECT_EQ(lines(), before);
  backend->add(a.cpu, a.cpu, b.cpu);
  EXPECT_NE(lines().find("{\"op\": \"add\", \"types\": {\"act\": \"f32\"}"), std::string::npos);
}

}  // namespace
}  // namespace nibble::test
