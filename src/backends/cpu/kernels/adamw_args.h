// SPDX-License-Identifier: MIT
// One call of adamw_step as the block loops see it, and the parts that stay scalar: the last,
// shorter block of a parameter, and NVFP4 blocks of the rules and targets that have no vector code.
#pragma once
#include "backend/backend.h"
#include "backends/cpu/kernels/packed_layout.h"
#include "optim/adamw_element.h"
#include "optim/moments.h"

namespace nibble::cpu {

struct AdamwArgs {
  Tensor master, grad;
  MomentView m, v;
  MomentFormat format;
  AdamwStep step;
  Requantize rq;
  AdamwTerms<float> terms;

  // Elements [begin, begin + count) of the tensors, at most a moment block, by the scalar rules.
  void scalar_block(int64_t begin, int64_t count) const;
  // From here on elements are counted in the parameter. The packed copy's values.
  void load_quantised(int64_t begin, int64_t count, float* w) const;
  // NVFP4 blocks from `begin` on whose bit in `changed` is set, from the new master w.
  void requantize_scalar(int64_t begin, uint32_t changed, const float* w) const;
  float global_scale(int64_t row) const {
    return rq.weight->row_scale ? rq.weight->row_scale.as<float>()[row] : 1.0f;
  }
};

// Walks the NVFP4 blocks of a range of elements, without dividing for each.
class BlockWalk {
 public:
  BlockWalk(const Requantize& rq, int64_t element)
      : in_(rq.weight->in),
        row_(rq.row_offset + element / in_),
        block_(element % in_ / kNvfp4Block),
        place_(block_place(in_, row_, block_)) {}
  void next() {
    ++block_;
    if (block_ % 4 != 0 && block_ * kNvfp4Block < in_) {  // the next one of the same tile
      place_ = {place_.codes + 2 * kHalfBytes, place_.scale + kTileRows};
      return;
    }
    if (block_ * kNvfp4Block == in_) block_ = 0, ++row_;
    place_ = block_place(in_, row_, block_);
  }
  int64_t row() const { return row_; }
  BlockPlace place() const { return place_; }

 private:
  int64_t in_, row_, block_;
  BlockPlace place_;
};

[[noreturn]] void throw_nan_master(int64_t row);

}  // namespace nibble::cpu
