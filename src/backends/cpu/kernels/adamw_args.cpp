// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/adamw_args.h"

#include <cstring>

namespace nibble::cpu {
namespace {

float load_float(const Tensor& t, int64_t i) {
  return t.dtype == DType::bf16 ? to_float(t.as<bf16_t>()[i]) : t.as<float>()[i];
}

}  // namespace

void AdamwArgs::scalar_block(int64_t begin, int64_t count) const {
  const int64_t b = begin / kMomentBlock, of_parameter = step.first + begin;
  float mi[kMomentBlock] = {}, vi[kMomentBlock] = {}, w[kMomentBlock] = {};
  uint32_t words[kMomentBlock] = {};
  uint32_t changed = 0;
  decode_moment<Moment::first>(format, m, b, count, mi);
  decode_moment<Moment::second>(format, v, b, count, vi);
  for (int64_t i = 0; i < count; ++i) w[i] = load_float(master, begin + i);
  if (step.from == UpdateFrom::quantised) load_quantised(of_parameter, count, w);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t e = begin + i;
    adamw_element(terms, load_float(grad, e), mi[i], vi[i], w[i]);
    if (master.dtype == DType::bf16) {
      bf16_t& stored = master.as<bf16_t>()[e];
      const bf16_t next = round_master(
          step.rounding, w[i], random_bits(step.seed, step.stream, uint64_t(of_parameter + i)));
      changed |= uint32_t(next.bits != stored.bits) << (i / kNvfp4Block);
      stored = next;
      w[i] = to_float(next);
    } else {
      float& stored = master.as<float>()[e];
      changed |= uint32_t(std::memcmp(&w[i], &stored, sizeof(float)) != 0) << (i / kNvfp4Block);
      stored = w[i];
    }
    words[i] =
        random_bits(step.seed, moment_stream(format, step.stream), uint64_t(of_parameter + i));
  }
  encode_moment<Moment::first>(format, m, b, count, mi, words);
  encode_moment<Moment::second>(format, v, b, count, vi, words);
  if (rq.weight) requantize_scalar(of_parameter, changed, w);
}

void AdamwArgs::load_quantised(int64_t begin, int64_t count, float* w) const {
  BlockWalk walk(rq, begin);
  for (int64_t i = 0; i < count; i += kNvfp4Block, walk.next()) {
    uint8_t codes[8];
    const uint8_t scale = unpack_block(rq.weight->packed.as<uint8_t>(), walk.place(), codes);
    dequantize_rows(codes, &scale, 1, kNvfp4Block, global_scale(walk.row()), w + i);
  }
}

void AdamwArgs::requantize_scalar(int64_t begin, uint32_t changed, const float* w) const {
  for (BlockWalk walk(rq, begin); changed != 0; changed >>= 1, w += kNvfp4Block, walk.next()) {
    if ((changed & 1) == 0) continue;
    uint8_t codes[8], scale;
    quantize_block(w, rq.rule, global_scale(walk.row()), codes, &scale);
    if (scale == kE4m3NanCode) throw_nan_master(walk.row());
    pack_block(rq.weight->packed.as<uint8_t>(), walk.place(), codes, scale);
  }
}

void throw_nan_master(int64_t row) {
  throw_usage(
      "row {} of a weight became NaN in an optimizer step: go back to the last checkpoint and "
      "lower the learning rate",
      row);
}

}  // namespace nibble::cpu
