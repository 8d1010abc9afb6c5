// SPDX-License-Identifier: MIT
// What a test run has called of the op set: for each op the types of its operands, the smallest and
// largest sizes, and which operands were strided or unaligned. With NIBBLE_OPS_COVERAGE=FILE the
// run adds this to FILE, one JSON object a line, when all its tests have passed;
// tools/make_ops_support.py merges such lines and makes docs/ops-support.md of them.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "backend/weight_views.h"

namespace nibble::test {

inline const char* op_coverage_file() { return std::getenv("NIBBLE_OPS_COVERAGE"); }

// One call, described by chained functions.
struct OpCall {
  explicit OpCall(std::string_view name) : op(name) {}

  // The operand whose type is the op's compute type.
  OpCall& act(const std::string& name, const Tensor& t) {
    act_ = t.dtype;
    types["act"] = dtype_name(t.dtype);
    return layout(name, t);
  }
  // An operand that usually has the compute type: its type is noted where it is another one.
  OpCall& like_act(const std::string& name, const Tensor& t) {
    if (t && t.dtype != act_) types[name] = dtype_name(t.dtype);
    return layout(name, t);
  }
  // An operand with a type of its own, or one that may be absent.
  OpCall& typed(const std::string& name, const Tensor& t) {
    types[name] = t ? dtype_name(t.dtype) : "none";
    return layout(name, t);
  }
  OpCall& weight(const std::string& name, const LinearWeight& w) {
    types[name] = w.is_packed() ? "nvfp4" : std::string(dtype_name(w.dense.dtype));
    if (w.row_scale) types[name] += " with row scales";
    return *this;
  }
  OpCall& value(const std::string& name, std::string_view v) {
    types[name] = v;
    return *this;
  }
  OpCall& size(const std::string& name, int64_t n) {
    sizes[name] = {n, n};
    return *this;
  }
  void went_through();  // notes it

  std::string op;
  std::map<std::string, std::string> types;
  std::map<std::string, std::pair<int64_t, int64_t>> sizes;  // smallest, largest
  std::set<std::string> strided, unaligned;

 private:
  // Unaligned: vectors of 16 bytes cannot begin where the rows do.
  OpCall& layout(const std::string& name, const Tensor& t) {
    if (!t || t.numel() == 0) return *this;
    if (!t.contiguous()) strided.insert(name);
    const size_t pitch = t.dim(0) > 1 ? size_t(t.row_stride) * dtype_bytes(t.dtype) : 0;
    if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0 || pitch % 16 != 0) unaligned.insert(name);
    return *this;
  }
  DType act_ = DType::f32;
};

class OpCoverage {
 public:
  static OpCoverage& instance() {
    static OpCoverage all;
    return all;
  }

  void add(const OpCall& call) {
    const std::lock_guard lock(mutex_);
    auto [at, is_new] = calls_.try_emplace({call.op, call.types}, call);
    if (is_new) return;
    OpCall& known = at->second;
    known.strided.insert(call.strided.begin(), call.strided.end());
    known.unaligned.insert(call.unaligned.begin(), call.unaligned.end());
    for (const auto& [name, range] : call.sizes) {
      auto& to = known.sizes.try_emplace(name, range).first->second;
      to = {std::min(to.first, range.first), std::max(to.second, range.second)};
    }
  }

  std::string lines() const {
    std::string text;
    for (const auto& [key, c] : calls_) text += line(c);
    return text;
  }

 private:
  // Names and types are identifiers and plain words: nothing to escape.
  static std::string quoted(const std::string& s) { return '"' + s + '"'; }
  template <class Range, class F>
  static std::string joined(const Range& range, F&& element) {
    std::string text;
    for (const auto& e : range) text += (text.empty() ? "" : ", ") + element(e);
    return text;
  }
  static std::string line(const OpCall& c) {
    const auto type = [](const auto& t) { return quoted(t.first) + ": " + quoted(t.second); };
    const auto size = [](const auto& s) {
      return quoted(s.first) + ": [" + std::to_string(s.second.first) + ", " +
             std::to_string(s.second.second) + "]";
    };
    return "{\"op\": " + quoted(c.op) + ", \"types\": {" + joined(c.types, type) +
           "}, \"sizes\": {" + joined(c.sizes, size) + "}, \"strided\": [" +
           joined(c.strided, quoted) + "], \"unaligned\": [" + joined(c.unaligned, quoted) + "]}\n";
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, std::map<std::string, std::string>>, OpCall> calls_;
};

inline void OpCall::went_through() { OpCoverage::instance().add(*this); }

// Lines are appended in one piece: processes of a parallel ctest may share a file.
class WriteOpCoverage final : public ::testing::Environment {
  void TearDown() override {
    const char* file = op_coverage_file();
    if (!file || !::testing::UnitTest::GetInstance()->Passed()) return;
    const std::string text = OpCoverage::instance().lines();
    const int out = ::open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    const bool written = out >= 0 && ::write(out, text.data(), text.size()) == ssize_t(text.size());
    if (out >= 0) ::close(out);
    EXPECT_TRUE(written) << "NIBBLE_OPS_COVERAGE: cannot write " << file;
  }
};

}  // namespace nibble::test
