// SPDX-License-Identifier: MIT
#include "backends/cpu/kernels/kernels.h"

namespace nibble::cpu {
namespace {

// Room for the weights and statistics of one op, reserved whole: pointers stay valid until the op
// ends. Only types other than f32 come here.
float* take_stats(Context& c, int64_t count, size_t* taken) {
  constexpr size_t kRoom = size_t(1) << 20;  // floats, doubled as needed by a first large op
  *taken = (size_t(count) + 15) / 16 * 16;
  const size_t wanted = c.stats_used + *taken;
  if (c.stats_used > 0 && wanted > kRoom) {
    throw_internal("statistics of {} elements in a 16-bit type: keep them in f32", count);
  }
  float* base = c.stats.get_as<float>(wanted > kRoom ? wanted : kRoom);
  float* p = base + c.stats_used;
  c.stats_used = wanted;
  return p;
}

Tensor flat(float* data, int64_t count) { return make_tensor(data, DType::f32, {count}); }

}  // namespace

FloatInput::FloatInput(Context& c, Tensor t) : c_(c) {
  if (t.dtype == DType::f32 && t.contiguous()) {
    data_ = t.as<float>();
    return;
  }
  float* p = take_stats(c, t.numel(), &taken_);
  for (int64_t i = 0; i < t.dim(0); ++i) {
    const Tensor row = t.slice(i, 1);
    convert_elements(flat(p + i * t.inner(), t.inner()), row);
  }
  data_ = p;
}

FloatOutput::FloatOutput(Context& c, Tensor t) : c_(c), target_(t), data_(nullptr) {
  if (!t) return;
  data_ =
      t.dtype == DType::f32 && t.contiguous() ? t.as<float>() : take_stats(c, t.numel(), &taken_);
}

void FloatOutput::finish() {
  if (taken_ == 0) return;
  for (int64_t i = 0; i < target_.dim(0); ++i) {
    convert_elements(target_.slice(i, 1), flat(data_ + i * target_.inner(), target_.inner()));
  }
}

}  // namespace nibble::cpu
