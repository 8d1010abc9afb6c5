// SPDX-License-Identifier: MIT
// The reference backend: every op in its plainest form over one scalar type, double for exact
// comparisons and complex<double> for complex-step derivatives of the production wiring. Slow on
// purpose; quantised data goes through the scalar rules of src/quant.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/backend.h"
#include "core/half.h"
#include "core/memory/reserved_pages.h"
#include "quant/codec.h"
#include "quant/int8.h"
#include "quant/nvfp4.h"
#include "support/ref_backward.h"
#include "support/ref_linear.h"
#include "support/ref_optimizer.h"
#include "support/ref_sample.h"

namespace nibble::test {

template <class T>
class RefBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  BackendTraits traits() const override {
    BackendTraits t;
    t.page_bytes = can_reserve_pages() ? page_bytes() : 0;
    return t;
  }

 private:
  Buffer do_allocate(size_t n_bytes, std::string_view) override {
    return Buffer(new std::byte[n_bytes](), n_bytes, [](std::byte* p, size_t) { delete[] p; });
  }
  std::unique_ptr<ReservedPages> do_reserve(size_t n_bytes, std::string_view what) override {
    return std::make_unique<ReservedPages>(n_bytes, what);
  }
  void do_upload(Tensor dst, const void* host) override {
    std::memcpy(dst.data, host, dst.bytes());
  }
  void do_download(void* host, Tensor src) override { std::memcpy(host, src.data, src.bytes()); }
  void do_copy(Tensor dst, Tensor src) override {
    const size_t e = dtype_bytes(dst.dtype);
    for (int64_t i = 0; i < dst.dim(0); ++i) {
      std::memcpy(dst.data + size_t(i * dst.row_stride) * e,
                  src.data + size_t(i * src.row_stride) * e, size_t(dst.inner()) * e);
    }
  }
  void do_sync() override {}

  size_t do_packed_bytes(int64_t out, int64_t in) const override {
    return size_t(out) * ref::packed_row_bytes<T>(in);
  }
  void do_pack_rows(const LinearWeight& w, int64_t r, int64_t rows, const uint8_t* codes,
                    const uint8_t* scales) override {
    ref::pack_rows<T>(w, r, rows, codes, scales);
  }
  void do_unpack_rows(const LinearWeight& w, int64_t r, int64_t rows, uint8_t* codes,
                      uint8_t* scales) const override {
    ref::unpack_rows<T>(w, r, rows, codes, scales);
  }

  void do_embed(Tensor out, Tensor table, Tensor ids) override {
    const int64_t C = out.dim(1);
    for (int64_t n = 0; n < out.dim(0); ++n) {
      for (int64_t c = 0; c < C; ++c)
        out.row<T>(n)[c] = ref::value<T>(table, int64_t(ids.as<int32_t>()[n]) * C + c);
    }
  }

  void do_rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor w, double eps) override {
    const int64_t K = x.cols(), heads = x.inner() / K;
    for (int64_t n = 0; n < x.dim(0); ++n) {
      for (int64_t h = 0; h < heads; ++h) {
        const T* in = x.row<T>(n) + h * K;
        T* o = out.row<T>(n) + h * K;
        T squares{};
        for (int64_t i = 0; i < K; ++i) squares += in[i] * in[i];
        const T r = T(1) / std::sqrt(squares / T(double(K)) + T(eps));
        for (int64_t i = 0; i < K; ++i) o[i] = in[i] * r * ref::value<T>(w, i);
        if (rstd) rstd.as<T>()[n * heads + h] = r;
      }
    }
  }

  void do_rope_table(Tensor table, Tensor positions, const RopeFrequencies& f) override {
    const int64_t D = table.dim(1);
    for (int64_t n = 0; n < table.dim(0); ++n) {
      for (int64_t i = 0; i < D / 2; ++i) {
        const double angle = positions.as<int32_t>()[n] * f.turns[size_t(i)];
        table.row<T>(n)[i] = T(f.factor * std::cos(angle));
        table.row<T>(n)[i + D / 2] = T(f.factor * std::sin(angle));
      }
    }
  }

  void do_rope(Tensor out, Tensor x, Tensor table, Rotation rotation) override {
    const int64_t H = x.dim(1), D = x.dim(2), half = D / 2;
    const T sign(rotation == Rotation::forward ? 1.0 : -1.0);
    for (int64_t n = 0; n < x.dim(0); ++n) {
      const T *cos = table.row<T>(n), *sin = cos + half;
      for (int64_t h = 0; h < H; ++h) {
        const T* in = x.row<T>(n) + h * D;
        T* o = out.row<T>(n) + h * D;
        for (int64_t i = 0; i < half; ++i) {
          const T a = in[i], b = in[i + half];
          o[i] = a * cos[i] - b * sign * sin[i];
          o[i + half] = b * cos[i] + a * sign * sin[i];
        }
      }
    }
  }

  void do_add_bias(Tensor out, Tensor x, Tensor bias) override {
    for (int64_t n = 0; n < x.dim(0); ++n) {
      for (int64_t i = 0; i < x.inner(); ++i)
        out.row<T>(n)[i] = x.row<T>(n)[i] + ref::value<T>(bias, i);
    }
  }
  void do_bias_rope(Tensor out, Tensor x, Tensor bias, Tensor table, StillPairs still) override {
    add_bias(out, x, bias);
    rope(out, out, table, Rotation::forward);
    const int64_t half = x.dim(2) / 2;
    for (int64_t n = 0; n < x.dim(0); ++n) {
      for (int64_t i = 0; i < x.inner(); ++i) {
        if (i % half >= still.begin)
          out.row<T>(n)[i] -= T(double(still.factor)) * ref::value<T>(bias, i);
      }
    }
  }
  void do_bias_back(Tensor db, Tensor dy, Accumulate a) override {
    for (int64_t i = 0; i < dy.dim(1); ++i) {
      T sum = a == Accumulate::yes ? db.as<T>()[i] : T{};
      for (int64_t n = 0; n < dy.dim(0); ++n) sum += dy.row<T>(n)[i];
      db.as<T>()[i] = sum;
    }
  }

  void do_kv_append(KvView kv, Tensor k, Tensor v, Tensor slots) override {
    if (kv.k.data == k.data) return;
    for (int64_t n = 0; n < k.dim(0); ++n) {
      const int64_t slot = slots.as<int32_t>()[n];
      for (int64_t i = 0; i < k.inner(); ++i) {
        ref::set_value<T>(kv.k, slot * kv.k.row_stride + i, k.row<T>(n)[i]);
        ref::set_value<T>(kv.v, slot * kv.v.row_stride + i, v.row<T>(n)[i]);
      }
    }
  }

  void do_attention(Tensor out, Tensor lse, Tensor q, KvView kv, Tensor sequences) override {
    const int64_t Hq = q.dim(1), D = q.dim(2), group = Hq / kv.k.dim(1);
    const T scale(1.0 / std::sqrt(double(D)));
    const auto* seqs = reinterpret_cast<const Sequence*>(sequences.as<int32_t>());
    for (int64_t s = 0; s < sequences.dim(0); ++s) {
      const Sequence seq = seqs[s];
      for (int64_t i = 0; i < seq.q_len; ++i) {
        for (int64_t h = 0; h < Hq; ++h) {
          const T* qi = q.row<T>(seq.q_begin + i) + h * D;
          const int64_t keys = seq.kv_len - seq.q_len + i + 1;
          std::vector<T> p(static_cast<size_t>(keys));
          double largest = -std::numeric_limits<double>::infinity();
          for (int64_t j = 0; j < keys; ++j) {
            const int64_t kj = (seq.kv_begin + j) * kv.k.row_stride + h / group * D;
            T dot{};
            for (int64_t d = 0; d < D; ++d) dot += qi[d] * ref::value<T>(kv.k, kj + d);
            p[size_t(j)] = dot * scale;
            largest = std::max(largest, ref::real_part(p[size_t(j)]));
          }
          T sum{};
          for (T& e : p) sum += (e = std::exp(e - T(largest)));
          T* o = out.row<T>(seq.q_begin + i) + h * D;
          std::fill_n(o, D, T{});
          for (int64_t j = 0; j < keys; ++j) {
            const int64_t vj = (seq.kv_begin + j) * kv.v.row_stride + h / group * D;
            for (int64_t d = 0; d < D; ++d)
              o[d] += p[size_t(j)] / sum * ref::value<T>(kv.v, vj + d);
          }
          if (lse) lse.row<T>(seq.q_begin + i)[h] = std::log(sum) + T(largest);
        }
      }
    }
  }

  void do_swiglu(Tensor out, Tensor gate, Tensor up) override {
    for (int64_t n = 0; n < out.dim(0); ++n) {
      for (int64_t i = 0; i < out.dim(1); ++i) {
        const T g = gate.row<T>(n)[i];
        out.row<T>(n)[i] = g / (T(1) + std::exp(-g)) * up.row<T>(n)[i];
      }
    }
  }

  void do_add(Tensor out, Tensor a, Tensor b) override {
    for (int64_t n = 0; n < out.dim(0); ++n) {
      for (int64_t i = 0; i < out.inner(); ++i) out.row<T>(n)[i] = a.row<T>(n)[i] + b.row<T>(n)[i];
    }
  }

  void do_gather_rows(Tensor out, Tensor x, Tensor rows) override {
    for (int64_t n = 0; n < out.dim(0); ++n) {
      std::copy_n(x.row<T>(rows.as<int32_t>()[n]), x.dim(1), out.row<T>(n));
    }
  }

  void do_sample(Tensor out, Tensor logits, Tensor rows, Tensor context, Choice) override {
    ref::sample<T>(out, logits, rows, context);
  }
  void do_linear(Tensor out, Tensor x, const LinearWeight& w, Activations activations) override {
    ref::linear<T>(out, x, w, activations);
  }
  void do_quantize_rows(const LinearWeight& w, int64_t row, Tensor src, ScaleRule rule) override {
    ref::quantize_rows<T>(w, row, src, rule);
  }
  void do_linear_dgrad(Tensor dx, Tensor dy, const LinearWeight& w, Accumulate a) override {
    ref::linear_dgrad<T>(dx, dy, w, a);
  }
  void do_linear_wgrad(Tensor dw, Tensor dy, Tensor x, const GradWrite& write) override {
    ref::linear_wgrad<T>(dw, dy, x, write);
  }
  void do_softmax_stats(Tensor stats, Tensor logits, Tensor targets, int64_t v_begin,
                        Accumulate a) override {
    ref::softmax_stats<T>(stats, logits, targets, v_begin, a);
  }
  void do_cross_entropy(Tensor loss, Tensor stats, Tensor targets) override {
    ref::cross_entropy<T>(loss, stats, targets);
  }
  void do_cross_entropy_back(Tensor dlogits, Tensor logits, Tensor stats, Tensor targets,
                             int64_t v_begin, double scale) override {
    ref::cross_entropy_back<T>(dlogits, logits, stats, targets, v_begin, scale);
  }
  void do_divergence(Tensor loss, Tensor dlogits, Tensor logits, Tensor stats, Tensor teacher,
                     Tensor teacher_stats, double scale, Accumulate a) override {
    ref::divergence<T>(loss, dlogits, logits, stats, teacher, teacher_stats, scale, a);
  }
  void do_l1_loss(Tensor loss, Tensor dh, Tensor h, Tensor table, Tensor targets,
                  double scale) override {
    ref::l1_loss<T>(loss, dh, h, table, targets, scale);
  }
  void do_rms_norm_back(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w,
                        Tensor base, Accumulate a) override {
    ref::rms_norm_back<T>(dx, dw, dy, x, rstd, w, base, a);
  }
  void do_attention_back(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                         Tensor q, KvView kv, Tensor sequences) override {
    ref::attention_back<T>(dq, dk, dv, dout, out, lse, q, kv, sequences);
  }
  void do_swiglu_back(Tensor dgate, Tensor dup, Tensor dout, Tensor gate, Tensor up) override {
    ref::swiglu_back<T>(dgate, dup, dout, gate, up);
  }
  void do_embed_back(Tensor dtable, Tensor dx, Tensor ids, Tensor order,
                     const GradWrite& write) override {
    ref::embed_back<T>(dtable, dx, ids, order, write);
  }
  void do_scatter_rows(Tensor out, Tensor x, Tensor rows) override {
    ref::scatter_rows<T>(out, x, rows);
  }
  void do_sum_squares(Tensor out, Tensor x) override { ref::sum_squares<T>(out, x); }
  void do_adamw_step(Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                     int64_t begin, int64_t count, const AdamwStep& step,
                     const Requantize& requantize) override {
    ref::adamw_step<T>(master, grad, m, v, format, begin, count, step, requantize);
  }
};

// Compiled once, in ref_backend.cpp.
extern template class RefBackend<double>;
extern template class RefBackend<std::complex<double>>;

}  // namespace nibble::test
