// SPDX-License-Identifier: MIT
// One parameter with its gradient, moments and packed copy on some backend, and its state as
// bytes, so that backends, targets and divisions can be compared bit for bit.
#pragma once
#include <optional>
#include <utility>

#include "ops/linear_support.h"
#include "optim/adamw_element.h"
#include "optim/moment_part.h"
#include "optim/moments.h"

namespace nibble::test {

constexpr MomentFormat kMomentFormats[] = {MomentFormat::f32, MomentFormat::bf16,
                                           MomentFormat::int8, MomentFormat::int8_linear,
                                           MomentFormat::nvfp4};

struct PackedCase {
  ScaleRule rule = ScaleRule::four_over_six;
  bool row_scales = false;
  int64_t row_offset = 0;
  int64_t rows_below = 0;  // of the weight, after the parameter's
};
struct ParameterCase {
  MomentFormat format = MomentFormat::int8;
  DType master = DType::bf16, grad = DType::bf16;
  int64_t rows = 1, cols = 256;
  std::optional<PackedCase> packed = std::nullopt;
};

class Parameter {
 public:
  Parameter(Backend& backend, const ParameterCase& c)
      : backend_(backend),
        case_(c),
        master_(size_t(n()) * dtype_bytes(c.master)),
        grad_(size_t(n()) * dtype_bytes(c.grad)),
        m_(moment_bytes(c.format, n())),
        v_(m_.size()),
        master(make_tensor(master_.data(), c.master, {n()})),
        grad(make_tensor(grad_.data(), c.grad, {n()})) {
    if (!c.packed) return;
    const int64_t out = c.packed->row_offset + c.rows + c.packed->rows_below;
    if (c.packed->row_scales) {
      scales_.resize(size_t(out));
      for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = 0.01f + 0.003f * float(i % 7);
    }
    CanonicalNvfp4 canonical(out, c.cols, 11);
    weight_ = pack(backend, canonical);
    if (c.packed->row_scales) {
      weight_.w.row_scale = make_tensor(scales_.data(), DType::f32, {out});
    }
  }
  Parameter(const Parameter&) = delete;

  int64_t n() const { return case_.rows * case_.cols; }
  void set_master(const std::function<double(int64_t)>& f) {
    for (int64_t i = 0; i < n(); ++i) write_element(master, 0, i, f(i));
  }
  void set_grad(const std::function<double(int64_t)>& f) {
    for (int64_t i = 0; i < n(); ++i) write_element(grad, 0, i, f(i));
  }
  std::vector<double> master_values() const {
    std::vector<double> w;
    for (int64_t i = 0; i < n(); ++i) w.push_back(read_element(master, 0, i));
    return w;
  }
  // The packed copy from the master, as a run begins.
  void quantize_master() {
    std::vector<float> w(static_cast<size_t>(n()));
    for (int64_t i = 0; i < n(); ++i) w[size_t(i)] = float(read_element(master, 0, i));
    std::vector<uint8_t> codes(w.size() / 2), bytes(w.size() / 16);
    for (int64_t r = 0; r < case_.rows; ++r) {
      const float g = scales_.empty() ? 1.0f : scales_[size_t(case_.packed->row_offset + r)];
      quantize_rows(w.data() + r * case_.cols, 1, case_.cols, case_.packed->rule, g,
                    codes.data() + r * case_.cols / 2, bytes.data() + r * case_.cols / 16);
    }
    backend_.pack_rows(weight_.w, case_.packed->row_offset, case_.rows, codes, bytes);
  }
  void step(const AdamwStep& s) { step(s, 0, n()); }
  void step(const AdamwStep& s, int64_t begin, int64_t count) {
    const AdamwUpdate one = update(s, begin, count);
    backend_.adamw_steps({&one, 1});
  }
  // The same of tensors that hold nothing but these elements.
  void step_apart(AdamwStep s, int64_t begin, int64_t count) {
    s.first = begin;
    const size_t w = dtype_bytes(case_.master), g = dtype_bytes(case_.grad);
    const auto part = [&](std::vector<uint8_t>& all, size_t size) {
      const auto from = all.begin() + begin * int64_t(size);
      return std::vector<uint8_t>(from, from + count * int64_t(size));
    };
    std::vector<uint8_t> master_part = part(master_, w), grad_part = part(grad_, g);
    std::vector<uint8_t> m(moment_bytes(case_.format, count)), v(m.size());
    const auto ranges = moment_part(case_.format, n(), begin, count);
    const auto copy = [](const uint8_t* from, uint8_t* to, size_t bytes) {
      std::copy(from, from + bytes, to);
    };
    for (const MomentRange& r : ranges) {
      copy(m_.data() + r.whole, m.data() + r.part, r.bytes);
      copy(v_.data() + r.whole, v.data() + r.part, r.bytes);
    }
    Requantize rq;
    if (case_.packed) rq = {&weight_.w, case_.packed->row_offset, case_.packed->rule};
    const AdamwUpdate one{make_tensor(master_part.data(), case_.master, {count}),
                          make_tensor(grad_part.data(), case_.grad, {count}),
                          moment(m),
                          moment(v),
                          case_.format,
                          0,
                          count,
                          s,
                          rq};
    backend_.adamw_steps({&one, 1});
    copy(master_part.data(), master_.data() + begin * int64_t(w), master_part.size());
    for (const MomentRange& r : ranges) {
      copy(m.data() + r.part, m_.data() + r.whole, r.bytes);
      copy(v.data() + r.part, v_.data() + r.whole, r.bytes);
    }
  }
  AdamwUpdate update(const AdamwStep& s, int64_t begin, int64_t count) {
    Requantize rq;
    if (case_.packed) rq = {&weight_.w, case_.packed->row_offset, case_.packed->rule};
    return {master, grad, moment(m_), moment(v_), case_.format, begin, count, s, rq};
  }
  // Codes, then scale bytes, of the whole weight.
  std::vector<uint8_t> packed_bytes() const {
    const LinearWeight& w = weight_.w;
    std::vector<uint8_t> codes(size_t(w.out * w.in / 2)), bytes(size_t(w.out * w.in / 16));
    backend_.unpack_rows(w, 0, w.out, codes, bytes);
    codes.insert(codes.end(), bytes.begin(), bytes.end());
    return codes;
  }
  std::vector<uint8_t> state() const {
    std::vector<uint8_t> s = master_;
    s.insert(s.end(), m_.begin(), m_.end());
    s.insert(s.end(), v_.begin(), v_.end());
    if (case_.packed) {
      const auto p = packed_bytes();
      s.insert(s.end(), p.begin(), p.end());
    }
    return s;
  }
  const std::vector<uint8_t>& first_moment() const { return m_; }
  const std::vector<uint8_t>& second_moment() const { return v_; }
  // Master, gradient and moments of another parameter of the same case.
  void take_state(const Parameter& p) {
    std::copy(p.master_.begin(), p.master_.end(), master_.begin());
    std::copy(p.grad_.begin(), p.grad_.end(), grad_.begin());
    std::copy(p.m_.begin(), p.m_.end(), m_.begin());
    std::copy(p.v_.begin(), p.v_.end(), v_.begin());
  }
  template <Moment kMoment>
  std::vector<float> moment_values() {
    std::vector<float> x(static_cast<size_t>(n()));
    const MomentView view(case_.format, kMoment == Moment::first ? m_.data() : v_.data(), n());
    for (int64_t b = 0; b * kMomentBlock < n(); ++b) {
      const int64_t at = b * kMomentBlock;
      decode_moment<kMoment>(case_.format, view, b, std::min(kMomentBlock, n() - at),
                             x.data() + at);
    }
    return x;
  }
  // Any codes at all under the scales there are: states that few steps would not reach.
  void scramble_codes(uint64_t seed) {
    if (case_.format == MomentFormat::f32 || case_.format == MomentFormat::bf16) return;
    const int64_t codes = case_.format == MomentFormat::nvfp4 ? n() / 2 : n();
    for (size_t i = 0; i < size_t(codes); ++i) {
      const auto r = philox(seed, 0, i);
      m_[i] = uint8_t(r[0]);
      v_[i] = uint8_t(case_.format == MomentFormat::int8 ? r[1] : r[1] & 0x77);  // not negative
    }
  }

 private:
  static Tensor moment(std::vector<uint8_t>& bytes) {
    return make_tensor(bytes.data(), DType::u8, {int64_t(bytes.size())});
  }

  Backend& backend_;
  ParameterCase case_;
  std::vector<uint8_t> master_, grad_, m_, v_;
  std::vector<float> scales_;
  OwnedWeight weight_;

 public:
  Tensor master, grad;
};

inline AdamwStep adamw_at(int t, float lr) {
  AdamwStep s;
  s.lr = lr;
  s.bias1 = float(1 - std::pow(double(s.beta1), t));
  s.bias2 = float(1 - std::pow(double(s.beta2), t));
  s.seed = 42;
  s.stream = uint64_t(t) << 32 | 7;
  return s;
}

inline double normal_at(uint64_t seed, uint64_t stream, int64_t i) {
  return normal_pair(philox(seed, stream, uint64_t(i)))[0];
}

}  // namespace nibble::test
