// SPDX-License-Identifier: MIT
#include "core/arena.h"

#include <algorithm>

namespace nibble {

Tensor Arena::take(DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  const size_t n = (t.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  if (!measuring()) {
    if (top_ + n > buffer_.bytes()) {
      throw_internal("arena '{}' is full: {} wanted, {} of {} bytes used", name_, t.describe(),
                     top_, buffer_.bytes());
    }
    t.data = buffer_.data() + top_;
  }
  top_ += n;
  peak_ = std::max(peak_, top_);
  return t;
}

}  // namespace nibble
