// SPDX-License-Identifier: MIT
// Operands that exist twice, for the tested backend (the CPU's, or the GPU's: tested_backend.h) in
// its storage type and on the reference backend in double with the very same values, and the
// comparison of results with derived bounds.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/simd/target_control.h"
#include "core/half.h"
#include "core/rng.h"
#include "support/ref_backend.h"
#include "support/tested_backend.h"

namespace nibble::test {

constexpr double kRoundoff = 0x1p-24;  // of fp32 to nearest

// Roundings along a sum of K products, as multiples of kRoundoff. The CPU sums in chunks: one per
// product within a chunk, one per chunk. Tensor cores and the GPU's loops add in any order, and
// tensor cores truncate, which costs twice a rounding.
inline double sum_depth(int64_t k) {
  if (testing_cuda()) return 2 * double(k);
  const int64_t chunk = cpu::gemm_chunk(k);
  return double(chunk) + double(k) / double(chunk);
}

// Largest relative error of storing a float as t; f32 results are not stored again.
inline double storage_roundoff(DType t) {
  return t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : 0.0;
}
// Below this the relative error of a stored value is larger: half the smallest step.
inline double storage_floor(DType t) {
  return t == DType::f16 ? 0x1p-25 : t == DType::bf16 ? 0x1p-134 : 0x1p-150;
}

// Unscaled frequencies for a table [N, D].
inline RopeFrequencies turns_of(double theta, const Tensor& table) {
  RopeFrequencies f;
  const int64_t width = table.dim(1);
  for (int64_t i = 0; i < width / 2; ++i) {
    f.turns.push_back(std::pow(theta, -2.0 * double(i) / double(width)));
  }
  return f;
}

inline uint8_t& f8_element(const Tensor& t, int64_t row, int64_t i) {
  return reinterpret_cast<uint8_t*>(t.data)[row * t.row_stride + i];
}
inline double read_element(const Tensor& t, int64_t row, int64_t i) {
  switch (t.dtype) {
    case DType::f32: return double(t.row<float>(row)[i]);
    case DType::bf16: return double(to_float(t.row<bf16_t>(row)[i]));
    case DType::f16: return double(to_float(t.row<f16_t>(row)[i]));
    case DType::f8_e4m3: return double(e4m3_value(f8_element(t, row, i)));
    case DType::f64: return t.row<double>(row)[i];
    case DType::i32: return double(t.row<int32_t>(row)[i]);
    default: ADD_FAILURE() << "type"; return 0;
  }
}
inline void write_element(const Tensor& t, int64_t row, int64_t i, double v) {
  switch (t.dtype) {
    case DType::f32: t.row<float>(row)[i] = float(v); break;
    case DType::bf16: t.row<bf16_t>(row)[i] = to_bf16(float(v)); break;
    case DType::f16: t.row<f16_t>(row)[i] = to_f16(float(v)); break;
    case DType::f8_e4m3: f8_element(t, row, i) = e4m3_encode(float(v)); break;
    case DType::f64: t.row<double>(row)[i] = v; break;
    case DType::i32: t.row<int32_t>(row)[i] = int32_t(v); break;
    default: ADD_FAILURE() << "type";
  }
}

// One tensor, twice. `padding` elements between rows (a column slice of something wider) hold a
// pattern; intact() tells whether anyone wrote there.
class Operand {
 public:
  static constexpr uint8_t kPattern = 0xff;  // NaN in every float type: reading it shows

  Operand() = default;
  Operand(DType type, std::initializer_list<int64_t> shape, int64_t padding = 0) {
    cpu = make_tensor(nullptr, type, shape);
    ref = make_tensor(nullptr, is_float(type) ? DType::f64 : type, shape);
    cpu.row_stride += padding;
    ref.row_stride += padding;
    cpu_bytes_.assign(size_t(cpu.dim(0) * cpu.row_stride) * dtype_bytes(cpu.dtype) + 64, kPattern);
    ref_bytes_.assign(size_t(ref.dim(0) * ref.row_stride) * dtype_bytes(ref.dtype) + 64, kPattern);
    cpu.data = reinterpret_cast<std::byte*>(cpu_bytes_.data());
    ref.data = reinterpret_cast<std::byte*>(ref_bytes_.data());
  }
  Operand(Operand&&) = default;
  Operand& operator=(Operand&&) = default;

  // Fills both with f(flat index), rounded to the storage type.
  Operand& fill(const std::function<double(int64_t)>& f) {
    for (int64_t r = 0, k = 0; r < cpu.dim(0); ++r) {
      for (int64_t i = 0; i < cpu.inner(); ++i, ++k) {
        write_element(cpu, r, i, f(k));
        write_element(ref, r, i, read_element(cpu, r, i));
      }
    }
    return *this;
  }
  Operand& normal(uint64_t seed, double scale = 1.0) {
    return fill([=](int64_t i) { return scale * normal_pair(philox(seed, 0, uint64_t(i)))[0]; });
  }
  bool intact() const {
    const size_t e = dtype_bytes(cpu.dtype);
    for (int64_t r = 0; r < cpu.dim(0); ++r) {
      const size_t begin = size_t(r * cpu.row_stride + cpu.inner()) * e;
      const size_t end =
          r + 1 < cpu.dim(0) ? size_t((r + 1) * cpu.row_stride) * e : cpu_bytes_.size();
      for (size_t i = begin; i < end; ++i) {
        if (cpu_bytes_[i] != kPattern) return false;
      }
    }
    return true;
  }
  std::vector<double> cpu_values() const { return values(cpu); }
  std::vector<double> ref_values() const { return values(ref); }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> b;
    const size_t n = size_t(cpu.inner()) * dtype_bytes(cpu.dtype);
    for (int64_t r = 0; r < cpu.dim(0); ++r) {
      const auto* p = reinterpret_cast<const uint8_t*>(cpu.data + size_t(r * cpu.row_stride) *
                                                                      dtype_bytes(cpu.dtype));
      b.insert(b.end(), p, p + n);
    }
    return b;
  }

  Tensor cpu, ref;

 private:
  static std::vector<double> values(const Tensor& t) {
    std::vector<double> v;
    for (int64_t r = 0; r < t.dim(0); ++r) {
      for (int64_t i = 0; i < t.inner(); ++i) v.push_back(read_element(t, r, i));
    }
    return v;
  }
  std::vector<uint8_t> cpu_bytes_, ref_bytes_;
};

// |cpu - ref| <= bound(i) + one rounding of the storage type, element by element.
inline void expect_close(const Operand& o, const std::function<double(int64_t)>& bound,
                         const std::string& what) {
  const auto got = o.cpu_values(), want = o.ref_values();
  const double store = storage_roundoff(o.cpu.dtype), floor = storage_floor(o.cpu.dtype);
  int failures = 0;
  for (size_t i = 0; i < got.size() && failures < 3; ++i) {
    const double compute = bound(int64_t(i));
    const double limit = compute + store * (std::abs(want[i]) + compute) + floor;
    if (!(std::abs(got[i] - want[i]) <= limit)) {
      ++failures;
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", reference " << want[i]
                    << ", off by " << std::abs(got[i] - want[i]) << ", allowed " << limit;
    }
  }
  EXPECT_TRUE(o.intact()) << what << ": wrote outside its tensor";
}
inline void expect_relative(const Operand& o, double relative, const std::string& what) {
  const auto want = o.ref_values();
  expect_close(
      o, [&](int64_t i) { return relative * std::abs(want[size_t(i)]); }, what);
}

constexpr DType kActTypes[] = {DType::f32, DType::bf16, DType::f16};

// Runs `body` once per instruction set this machine can run.
inline void on_every_target(const std::function<void()>& body) {
  if (testing_cuda()) {
    body();
    return;
  }
  for (const std::string& target : cpu::available_targets()) {
    SCOPED_TRACE("target " + target);
    cpu::select_target(target);
    body();
  }
  cpu::select_target("");
}
// ... and once per activation type.
inline void on_every_target_and_type(const std::function<void(DType)>& body) {
  on_every_target([&] {
    for (DType t : kActTypes) {
      SCOPED_TRACE(std::string(dtype_name(t)));
      body(t);
    }
  });
}

// Both backends; calls go to one and then the other.
struct Both {
  std::unique_ptr<Backend> cpu = make_tested_backend();
  RefBackend<double> ref;
  Backend& reference() { return ref; }
};

}  // namespace nibble::test
