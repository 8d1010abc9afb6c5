// SPDX-License-Identifier: MIT
// Loss and gradients on the reference backend. The formulas are holomorphic: with T = complex they
// carry a derivative themselves; only comparisons look at the real part.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/backend.h"
#include "quant/rounding.h"
#include "support/ref_value.h"

namespace nibble::test::ref {

template <class T>
void softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin, Accumulate a) {
  const int64_t V = logits.dim(1);
  for (int64_t n = 0; n < logits.dim(0); ++n) {
    const T* x = logits.row<T>(n);
    T* s = stats.row<T>(n);
    if (a == Accumulate::no) s[0] = T(-std::numeric_limits<double>::infinity()), s[1] = s[2] = T{};
    const double before = real_part(s[0]);
    double largest = before;
    for (int64_t v = 0; v < V; ++v) largest = std::max(largest, real_part(x[v]));
    if (s[1] != T{}) s[1] *= std::exp(T(before - largest));
    // A piece of nothing but -infinity adds nothing.
    const double shift = largest == -std::numeric_limits<double>::infinity() ? 0 : largest;
    for (int64_t v = 0; v < V; ++v) s[1] += std::exp(x[v] - T(shift));
    s[0] = T(largest);
    const int64_t target = targets.as<int32_t>()[n] - v_begin;
    if (targets.as<int32_t>()[n] >= 0 && target >= 0 && target < V) s[2] = x[target];
  }
}

template <class T>
void cross_entropy(Tensor loss, Tensor stats, Tensor targets) {
  for (int64_t n = 0; n < stats.dim(0); ++n) {
    const T* s = stats.row<T>(n);
    loss.row<T>(n)[0] = targets.as<int32_t>()[n] < 0 ? T{} : std::log(s[1]) + s[0] - s[2];
  }
}

template <class T>
void cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                        int64_t v_begin, double scale) {
  for (int64_t n = 0; n < logits.dim(0); ++n) {
    const int64_t target = targets.as<int32_t>()[n];
    const T* s = stats.row<T>(n);
    for (int64_t v = 0; v < logits.dim(1); ++v) {
      const T p = std::exp(logits.row<T>(n)[v] - s[0]) / s[1];
      const T d = (p - T(v_begin + v == target ? 1.0 : 0.0)) * T(scale);
      dlogits.row<T>(n)[v] = target < 0 ? T{} : d;
    }
  }
}

template <class T>
void divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                Tensor teacher_stats, double scale, Accumulate a) {
  for (int64_t n = 0; n < logits.dim(0); ++n) {
    const T *s = stats.row<T>(n), *t = teacher_stats.row<T>(n);
    T sum = a == Accumulate::yes ? loss.row<T>(n)[0] : T{};
    for (int64_t v = 0; v < logits.dim(1); ++v) {
      const T from_own = logits.row<T>(n)[v] - s[0], from_teacher = teacher.row<T>(n)[v] - t[0];
      const T p = std::exp(from_own) / s[1], q = std::exp(from_teacher) / t[1];
      // What the teacher never says adds nothing, whatever its logarithm.
      if (q != T{}) sum += q * ((from_teacher - std::log(t[1])) - (from_own - std::log(s[1])));
      if (dlogits) dlogits.row<T>(n)[v] = (p - q) * T(scale);
    }
    loss.row<T>(n)[0] = sum;
  }
}

template <class T>
void l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets, double scale) {
  const int64_t C = h.dim(1);
  for (int64_t n = 0; n < h.dim(0); ++n) {
    const int64_t target = targets.as<int32_t>()[n];
    T sum{};
    for (int64_t c = 0; c < C; ++c) {
      const T difference = target < 0 ? T{} : h.row<T>(n)[c] - value<T>(table, target * C + c);
      const double sign = double(real_part(difference) > 0) - double(real_part(difference) < 0);
      sum += T(sign) * difference;
      dh.row<T>(n)[c] = T(sign * scale / double(C));
    }
    loss.row<T>(n)[0] = sum / T(double(C));
  }
}

// y_i = x_i r w_i with r = (mean x^2 + eps)^(-1/2), so dr/dx_i = -r^3 x_i / K.
template <class T>
void rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w, Tensor base,
                   Accumulate accumulate_dw) {
  const int64_t K = x.cols(), heads = x.inner() / K;
  std::vector<T> dw_sum(size_t(K), T{});
  for (int64_t n = 0; n < x.dim(0); ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      const T *xi = x.row<T>(n) + h * K, *g = dy.row<T>(n) + h * K;
      const T r = rstd.as<T>()[n * heads + h];
      T dot{};
      for (int64_t i = 0; i < K; ++i) {
        dot += g[i] * value<T>(w, i) * xi[i];
        dw_sum[size_t(i)] += g[i] * xi[i] * r;
      }
      for (int64_t i = 0; i < K; ++i) {
        const T through = r * (g[i] * value<T>(w, i) - xi[i] * r * r * dot / T(double(K)));
        dx.row<T>(n)[h * K + i] = base ? base.row<T>(n)[h * K + i] + through : through;
      }
    }
  }
  for (int64_t i = 0; dw && i < K; ++i) {
    T& d = dw.as<T>()[i];
    d = accumulate_dw == Accumulate::yes ? d + dw_sum[size_t(i)] : dw_sum[size_t(i)];
  }
}

// Writes the rows of the sequences; p = exp(score - lse), d score = p (dout . v - dout . out).
template <class T>
void attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q,
                    KvView kv, Tensor sequences) {
  const int64_t Hq = q.dim(1), Hkv = kv.k.dim(1), D = q.dim(2);
  const T scale(1.0 / std::sqrt(double(D)));
  const auto dot = [D](const T* a, const T* b) {
    T sum{};
    for (int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
    return sum;
  };
  const auto add = [D](T* to, T factor, const T* x) {
    for (int64_t d = 0; d < D; ++d) to[d] += factor * x[d];
  };
  const auto* seqs = reinterpret_cast<const Sequence*>(sequences.as<int32_t>());
  for (int64_t s = 0; s < sequences.dim(0); ++s) {
    const int64_t begin = seqs[s].q_begin, end = begin + seqs[s].q_len;
    for (int64_t i = begin; i < end; ++i) {
      std::fill_n(dq.row<T>(i), Hq * D, T{});
      std::fill_n(dk.row<T>(i), Hkv * D, T{});
      std::fill_n(dv.row<T>(i), Hkv * D, T{});
    }
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < Hq; ++h) {
        const int64_t kh = h / (Hq / Hkv) * D;
        const T *qi = q.row<T>(i) + h * D, *g = dout.row<T>(i) + h * D;
        const T delta = dot(g, out.row<T>(i) + h * D);
        for (int64_t j = begin; j <= i; ++j) {
          const T *kj = kv.k.row<T>(j) + kh, *vj = kv.v.row<T>(j) + kh;
          const T p = std::exp(dot(qi, kj) * scale - lse.row<T>(i)[h]);
          const T ds = p * (dot(g, vj) - delta) * scale;
          add(dq.row<T>(i) + h * D, ds, kj);
          add(dk.row<T>(j) + kh, ds, qi);
          add(dv.row<T>(j) + kh, p, g);
        }
      }
    }
  }
}

template <class T>
void swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) {
  for (int64_t n = 0; n < dout.dim(0); ++n) {
    for (int64_t i = 0; i < dout.dim(1); ++i) {
      const T g = gate.row<T>(n)[i], u = up.row<T>(n)[i], d = dout.row<T>(n)[i];
      const T sigmoid = T(1) / (T(1) + std::exp(-g));
      dgate.row<T>(n)[i] = d * u * sigmoid * (T(1) + g * (T(1) - sigmoid));
      dup.row<T>(n)[i] = d * g * sigmoid;
    }
  }
}

// Element i of a gradient: overwritten, or added to by the rules of GradWrite.
template <class T>
void write_embedding_gradient(const Tensor& dw, int64_t i, T v, const GradWrite& write) {
  const bool add = write.accumulate == Accumulate::yes;
  if (add) v += value<T>(dw, i);
  switch (dw.dtype) {
    case DType::f32: dw.as<float>()[i] = float(real_part(v)); break;
    case DType::bf16:
      dw.as<bf16_t>()[i] =
          add ? stochastic_bf16(float(real_part(v)),
                                random_bits(write.seed, write.stream, uint64_t(write.offset + i)))
              : to_bf16(float(real_part(v)));
      break;
    default: dw.as<T>()[i] = v;
  }
}

template <class T>
void embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order, const GradWrite& write) {
  const int64_t C = dx.dim(1), N = dx.dim(0);
  const int32_t *id = ids.as<int32_t>(), *row = order.as<int32_t>();
  if (write.accumulate == Accumulate::no) {
    std::fill_n(dtable.data, dtable.bytes(), std::byte(0));
  }
  for (int64_t begin = 0, end; begin < N; begin = end) {
    for (end = begin; end < N && id[row[end]] == id[row[begin]];) ++end;
    for (int64_t c = 0; c < C; ++c) {
      T sum{};
      for (int64_t i = begin; i < end; ++i) sum += dx.row<T>(row[i])[c];
      write_embedding_gradient(dtable, id[row[begin]] * C + c, sum, write);
    }
  }
}

template <class T>
void scatter_rows(Tensor out, Tensor x, Tensor rows) {
  for (int64_t n = 0; n < out.dim(0); ++n) std::fill_n(out.row<T>(n), out.dim(1), T{});
  for (int64_t i = 0; i < x.dim(0); ++i) {
    std::copy_n(x.row<T>(i), x.dim(1), out.row<T>(rows.as<int32_t>()[i]));
  }
}

}  // namespace nibble::test::ref
