// SPDX-License-Identifier: MIT
// Weights of a linear layer on both backends, and their absolute values for error bounds.
#pragma once
#include <optional>

#include "ops/op_support.h"

namespace nibble::test {

struct CanonicalNvfp4 {
  int64_t out, in;
  std::vector<uint8_t> codes, scales;

  // Random codes; scales of a decade or so, among them zero, subnormal and (if asked for) negative.
  enum class Signs { positive, both };
  CanonicalNvfp4(int64_t rows, int64_t cols, uint64_t seed, Signs signs = Signs::positive)
      : out(rows), in(cols), codes(size_t(rows * cols / 2)), scales(size_t(rows * cols / 16)) {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = uint8_t(philox(seed, 2, i)[0]);
    for (size_t i = 0; i < scales.size(); ++i) {
      const auto r = philox(seed, 3, i);
      scales[i] = uint8_t(r[0] % 16 == 0 ? r[1] % 8 : 24 + r[1] % 32);
      if (signs == Signs::both && r[2] % 3 == 0) scales[i] |= 0x80;
    }
  }
  CanonicalNvfp4 magnitudes() const {
    CanonicalNvfp4 m = *this;
    for (uint8_t& c : m.codes) c &= 0x77;
    for (uint8_t& s : m.scales) s &= 0x7f;
    return m;
  }
};

// A LinearWeight and the memory behind it.
struct OwnedWeight {
  Buffer memory, scale_memory;
  LinearWeight w;
};

inline OwnedWeight pack(Backend& backend, const CanonicalNvfp4& c) {
  OwnedWeight o;
  o.w.out = c.out;
  o.w.in = c.in;
  o.memory = backend.allocate(backend.packed_bytes(c.out, c.in), "test weight");
  o.w.packed = make_tensor(o.memory.data(), DType::u8, {int64_t(o.memory.bytes())});
  backend.pack_rows(o.w, 0, c.out, c.codes, c.scales);
  return o;
}

inline LinearWeight dense_weight(Tensor t, Tensor row_scale = {}) {
  LinearWeight w;
  w.out = t.dim(0);
  w.in = t.dim(1);
  w.dense = t;
  w.row_scale = row_scale;
  return w;
}

inline Operand magnitudes_of(const Operand& x) {
  Operand a(x.cpu.dtype, {x.cpu.dim(0), x.cpu.dim(1)});
  const auto v = x.ref_values();
  a.fill([&](int64_t i) { return std::abs(v[size_t(i)]); });
  return a;
}

// Rounding errors of a sum of products are at most depth * u * sum |w| |x|; `magnitudes` holds
// those sums, computed by the reference on absolute values.
inline void expect_product(const Operand& out, const Operand& magnitudes, double depth,
                           const std::string& what = "linear") {
  const auto m = magnitudes.ref_values();
  expect_close(
      out, [&](int64_t i) { return depth * kRoundoff * m[size_t(i)]; }, what);
}

}  // namespace nibble::test
