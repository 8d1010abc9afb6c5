// SPDX-License-Identifier: MIT
// The Qwen3 forward pass, written once for every backend, for training and for inference.
#pragma once
#include <span>

#include "model/acts.h"
#include "model/weights.h"

namespace nibble {

// Runs `batch` through the model: writes keys and values to `kv` (one view per layer) and the
// logits of batch.out_rows to acts.logits. acts must have been made for exactly these sizes.
void forward(Backend& backend, const Config& config, const Weights& weights, const Batch& batch,
             Acts& acts, std::span<const KvView> kv, Activations activations);

// The views training attends over: each layer's own keys and values.
std::vector<KvView> kv_of_acts(Acts& acts, const Config& config);

}  // namespace nibble
