// SPDX-License-Identifier: MIT
#include "train/sample_order.h"

#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/rng.h"

namespace nibble {
namespace {

// Keeps the shuffles apart from everything else that draws from the run's seed.
constexpr uint64_t kOrderStream = 0x6f72646572000000;  // "order"

}  // namespace

std::string_view sample_mode_name(SampleMode mode) {
  return mode == SampleMode::random ? "random" : "sequential";
}

SampleOrder::SampleOrder(SampleMode mode, int64_t n_samples, uint64_t seed)
    : mode_(mode), n_(n_samples), seed_(seed) {
  if (n_ < 1) throw_internal("an order of {} samples", n_);
}

int64_t SampleOrder::at(uint64_t position) {
  const uint64_t epoch = epoch_of(position);
  const uint64_t i = position % uint64_t(n_);
  if (mode_ == SampleMode::sequential) return int64_t(i);
  if (permutation_.empty() || epoch != epoch_) shuffle(epoch);
  return permutation_[i];
}

// Fisher-Yates. 64 random bits a draw keep the bias of the multiplication below n / 2^64.
void SampleOrder::shuffle(uint64_t epoch) {
  permutation_.resize(size_t(n_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t(0));
  for (uint64_t i = uint64_t(n_) - 1; i > 0; --i) {
    const auto r = philox(seed_, kOrderStream + epoch, i);
    const uint64_t bits = uint64_t(r[0]) << 32 | r[1];
    const auto j = uint64_t((unsigned __int128)(bits) * (i + 1) >> 64);
    std::swap(permutation_[i], permutation_[j]);
  }
  epoch_ = epoch;
}

}  // namespace nibble
