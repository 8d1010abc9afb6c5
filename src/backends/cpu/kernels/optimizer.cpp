// SPDX-License-Identifier: MIT
// AdamW, block by block of 256 elements, and the sum of squares of a gradient.
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "quant/moments.h"

#include <cstring>

namespace nibble::cpu {
namespace {

float load_float(const Tensor& t, int64_t i) {
  return t.dtype == DType::bf16 ? to_float(t.as<bf16_t>()[i]) : t.as<float>()[i];
}

struct Step {
  Tensor master, grad;
  MomentView m, v;
  MomentFormat format;
  const AdamwStep& step;
  const Requantize& rq;
  AdamwTerms<float> terms;

  void block(int64_t begin, int64_t count) const {
    const int64_t b = begin / kMomentBlock;
    float mi[kMomentBlock] = {}, vi[kMomentBlock] = {}, w[kMomentBlock] = {};
    uint32_t words[kMomentBlock] = {};
    uint32_t changed = 0;
    decode_moment<Moment::first>(format, m, b, count, mi);
    decode_moment<Moment::second>(format, v, b, count, vi);
    for (int64_t i = 0; i < count; ++i) w[i] = load_float(master, begin + i);
    if (step.from == UpdateFrom::quantised) load_quantised(begin, count, w);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t e = begin + i;
      adamw_element(terms, load_float(grad, e), mi[i], vi[i], w[i]);
      words[i] = random_bits(step.seed, step.stream, uint64_t(e));
      if (master.dtype == DType::bf16) {
        const bf16_t next = stochastic_bf16(w[i], words[i]);
        changed |= uint32_t(next.bits != master.as<bf16_t>()[e].bits) << (i / 16);
        master.as<bf16_t>()[e] = next;
        w[i] = to_float(next);
      } else {
        changed |= uint32_t(std::memcmp(&w[i], &master.as<float>()[e], 4) != 0) << (i / 16);
        master.as<float>()[e] = w[i];
      }
    }
    if (moment_stream(format, step.stream) != step.stream) {
      for (int64_t i = 0; i < count; ++i) {
        words[i] = random_bits(step.seed, moment_stream(format, step.stream), uint64_t(begin + i));
      }
    }
    encode_moment<Moment::first>(format, m, b, count, mi, words);
    encode_moment<Moment::second>(format, v, b, count, vi, words);
    if (rq.weight) requantise(begin, count, changed, w);
  }

  void load_quantised(int64_t begin, int64_t count, float* w) const {
    for (int64_t i = 0; i < count; i += kNvfp4Block) {
      uint8_t codes[8], scale;
      const int64_t row = row_of(begin + i);
      scale = unpack_block(rq.weight->packed.as<uint8_t>(), place(begin + i), codes);
      dequantize_rows(codes, &scale, 1, kNvfp4Block, global_scale(row), w + i);
    }
  }
  void requantise(int64_t begin, int64_t count, uint32_t changed, const float* w) const {
    for (int64_t i = 0; i < count; i += kNvfp4Block) {
      if (!(changed >> (i / 16) & 1)) continue;
      uint8_t codes[8], scale;
      const int64_t row = row_of(begin + i);
      quantize_block(w + i, rq.rule, global_scale(row), codes, &scale);
      if (scale == kE4m3NanCode) throw_nan(row);
      pack_block(rq.weight->packed.as<uint8_t>(), place(begin + i), codes, scale);
    }
  }
  int64_t row_of(int64_t element) const { return rq.row_offset + element / rq.weight->in; }
  BlockPlace place(int64_t element) const {
    return block_place(rq.weight->in, row_of(element), element % rq.weight->in / kNvfp4Block);
  }
  float global_scale(int64_t row) const {
    return rq.weight->row_scale ? rq.weight->row_scale.as<float>()[row] : 1.0f;
  }
  [[noreturn]] static void throw_nan(int64_t row) {
    throw_usage(
        "row {} of a weight became NaN in an optimizer step: go back to the last checkpoint and "
        "lower the learning rate",
        row);
  }
};

}  // namespace

void sum_squares(Context&, Tensor out, Tensor x) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double v = double(load_float(x, i));
    sum += v * v;
  }
  *out.as<double>() = sum;
}

void adamw_step(Context& c, Tensor master, Tensor grad, Tensor m, Tensor v, MomentFormat format,
                int64_t begin, int64_t count, const AdamwStep& step, const Requantize& requantize) {
  const int64_t n = master.numel(), blocks = (count + kMomentBlock - 1) / kMomentBlock;
  const Step s{
      master, grad,       MomentView(format, m.data, n), MomentView(format, v.data, n), format,
      step,   requantize, AdamwTerms<float>(step)};
  c.pool.parallel_for(blocks, 64, [&](int64_t from, int64_t to, int) {
    for (int64_t b = from; b < to; ++b) {
      s.block(begin + b * kMomentBlock, std::min(kMomentBlock, count - b * kMomentBlock));
    }
  });
}

}  // namespace nibble::cpu
