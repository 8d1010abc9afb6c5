// SPDX-License-Identifier: MIT
// The optimizer of the reference backend: block by block through the scalar rules of
// src/quant. Masters of f32 and bf16 are computed in float, bit for bit what every backend must
// give; a master of f64 in double, with the moments stored as their format has them.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "optim/adamw_element.h"
#include "optim/moments.h"
#include "support/ref_linear.h"
#include "support/ref_value.h"

namespace nibble::test::ref {

template <class T>
void sum_squares(Tensor out, Tensor x) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = real_part(value<T>(x, i));
    sum += v * v;
  }
  *out.as<double>() = sum;
}

// The packed copy's value of one element, as an update from it sees it.
inline float quantised_value(const LinearWeight& w, int64_t row, int64_t col) {
  return float(nvfp4_value(codes_of(w, row), scales_of(w, row), col)) * row_scale_of(w, row);
}

// R: the arithmetic, float or double. M: the master's storage.
template <class R, class M>
void adamw_block(M* master, Tensor grad, const MomentView& mv, const MomentView& vv,
                 MomentFormat format, int64_t begin, int64_t count, const AdamwStep& step,
                 const Requantize& rq) {
  const AdamwTerms<R> terms(step);
  const int64_t block = begin / kMomentBlock;
  float m[kMomentBlock] = {}, v[kMomentBlock] = {};
  uint32_t words[kMomentBlock] = {};
  std::vector<M> old(master + begin, master + begin + count);
  decode_moment<Moment::first>(format, mv, block, count, m);
  decode_moment<Moment::second>(format, vv, block, count, v);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t e = begin + i, of_parameter = step.first + e;
    R mi = R(m[i]), vi = R(v[i]), w;
    if (step.from == UpdateFrom::quantised) {
      w = R(quantised_value(*rq.weight, rq.row_offset + of_parameter / rq.weight->in,
                            of_parameter % rq.weight->in));
    } else if constexpr (std::is_same_v<M, bf16_t>) {
      w = to_float(master[e]);
    } else {
      w = master[e];
    }
    adamw_element(terms, R(value<double>(grad, e)), mi, vi, w);
    m[i] = float(mi), v[i] = float(vi);
    if constexpr (std::is_same_v<M, bf16_t>) {
      master[e] = round_master(step.rounding, w,
                               random_bits(step.seed, step.stream, uint64_t(of_parameter)));
    } else {
      master[e] = w;
    }
    words[i] = random_bits(step.seed, moment_stream(format, step.stream), uint64_t(of_parameter));
  }
  encode_moment<Moment::first>(format, mv, block, count, m, words);
  encode_moment<Moment::second>(format, vv, block, count, v, words);

  if (!rq.weight) return;
  for (int64_t i = 0; i < count; i += kNvfp4Block) {
    const M* now = master + begin + i;
    if (std::memcmp(now, old.data() + i, kNvfp4Block * sizeof(M)) == 0) continue;
    float x[kNvfp4Block];
    for (int64_t k = 0; k < kNvfp4Block; ++k) {
      if constexpr (std::is_same_v<M, bf16_t>) {
        x[k] = to_float(now[k]);
      } else {
        x[k] = float(now[k]);
      }
    }
    const LinearWeight& w = *rq.weight;
    const int64_t e = step.first + begin + i;
    const int64_t row = rq.row_offset + e / w.in, col = e % w.in;
    quantize_block(x, rq.rule, row_scale_of(w, row), codes_of(w, row) + col / 2,
                   scales_of(w, row) + col / kNvfp4Block);
  }
}

template <class T>
void adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format, int64_t begin,
                int64_t count, const AdamwStep& step, const Requantize& rq) {
  if constexpr (!std::is_same_v<T, double>) {
    throw_internal("adamw_step: the reference has it in real numbers only");
  } else {
    const int64_t n = master.numel();
    const MomentView mv(format, m.data, n), vv(format, v.data, n);
    for (int64_t b = begin; b < begin + count; b += kMomentBlock) {
      const int64_t size = std::min(kMomentBlock, begin + count - b);
      switch (master.dtype) {
        case DType::f64:
          adamw_block<double>(master.as<double>(), grad, mv, vv, format, b, size, step, rq);
          break;
        case DType::f32:
          adamw_block<float>(master.as<float>(), grad, mv, vv, format, b, size, step, rq);
          break;
        case DType::bf16:
          adamw_block<float>(master.as<bf16_t>(), grad, mv, vv, format, b, size, step, rq);
          break;
        default: throw_internal("adamw_step: a master of {}", master.describe());
      }
    }
  }
}

}  // namespace nibble::test::ref
