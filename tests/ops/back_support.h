// SPDX-License-Identifier: MIT
// What the tests of the gradients share.
#pragma once
#include <algorithm>

#include "ops/op_support.h"

namespace nibble::test {

// A result of the reference backend becomes an operand: both sides hold it as the CPU stores it.
inline void adopt_reference(Operand& o) {
  for (int64_t r = 0; r < o.ref.dim(0); ++r) {
    for (int64_t i = 0; i < o.ref.inner(); ++i) {
      write_element(o.cpu, r, i, read_element(o.ref, r, i));
      write_element(o.ref, r, i, read_element(o.cpu, r, i));
    }
  }
}

inline Operand sequence_operand(const std::vector<Sequence>& sequences) {
  Operand t(DType::i32, {int64_t(sequences.size()), 4});
  t.fill([&](int64_t i) {
    const Sequence& s = sequences[size_t(i / 4)];
    return double(std::array{s.q_begin, s.q_len, s.kv_begin, s.kv_len}[size_t(i % 4)]);
  });
  return t;
}
// Sequences of these lengths one after the other, as training packs them.
inline Operand packed_sequences(const std::vector<int32_t>& lengths) {
  std::vector<Sequence> s;
  int32_t begin = 0;
  for (int32_t n : lengths) s.push_back({begin, n, begin, n}), begin += n;
  return sequence_operand(s);
}

}  // namespace nibble::test
