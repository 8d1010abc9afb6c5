// SPDX-License-Identifier: MIT
// Weights from nowhere: a model of any shape with random values, for measuring speed without a
// checkpoint. Speed and memory do not depend on what the weights are.
#pragma once
#include <memory>

#include "formats/tensor_source.h"
#include "model/config.h"

namespace nibble {

// Every parameter of `config`: linear layers and the head as random NVFP4 codes with scales that
// keep activations near 1, the embedding in bf16, norms of 1. Bytes are made as they are read, by
// several threads, and are the same however they are read.
// A tied head is stored like any other matrix, or left out: then it is the embedding, quantised.
enum class TiedHead { stored, left_out };
std::unique_ptr<TensorSource> make_random_source(const Config& config, uint64_t seed, int threads,
                                                 TiedHead head = TiedHead::stored);

}  // namespace nibble
