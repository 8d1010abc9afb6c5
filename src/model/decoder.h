// SPDX-License-Identifier: MIT
// The forward and backward passes of a decoder, written once for every family, every backend, for
// training and for inference: pre-norm blocks of grouped-query attention with rotary embedding and
// a SwiGLU feed-forward. What a family has beyond that (norms or biases of heads) is in its weights
// or is not.
#pragma once
#include <functional>
#include <span>

#include "model/acts.h"
#include "model/grads.h"
#include "model/weights.h"

namespace nibble {

// Where a trainer steps into the passes. "Layers" -1 and L are what lies before the blocks
// (embedding) and after them (final norm, head).
struct PassHooks {
  // Called before a block's weights are read, in the forward and again in the backward: a run that
  // keeps no NVFP4 copy makes it here.
  std::function<void(int64_t layer)> weights_needed;
  // Called when every gradient of a layer is complete, from L down to -1. Nothing reads the
  // layer's weights after that in this step, except that a tied head is the embedding's (-1).
  std::function<void(int64_t layer)> gradients_ready;
};

// Runs `batch` through the blocks and the final norm: writes keys and values to `kv` (one view per
// layer) and the normalised rows batch.out_rows to acts.n_out. acts must have been made for
// exactly these sizes.
void forward_hidden(Backend& backend, const Config& config, const Weights& weights,
                    const Batch& batch, Acts& acts, std::span<const KvView> kv,
                    Activations activations, const PassHooks& hooks = {});

// forward_hidden and the head: logits of batch.out_rows in acts.logits.
void forward(Backend& backend, const Config& config, const Weights& weights, const Batch& batch,
             Acts& acts, std::span<const KvView> kv, Activations activations,
             const PassHooks& hooks = {});

// What `forward` does with a batch of one new token a sequence, as a value for
// Backend::decode_step. Nothing of it may move while the plan is used.
DecodePlan decode_plan(const Config& config, const Weights& weights, const Batch& batch,
                       const Acts& acts, std::span<const KvView> kv, Activations activations);

// The views training attends over: each layer's own keys and values.
std::vector<KvView> kv_of_acts(Acts& acts, const Config& config);

// From d_out [R, C] (act or stat), the gradient of acts.n_out, to every gradient in `grads`; the
// head's own are the caller's. Follows a forward_hidden on acts made with any training
// Keep and consumes them. Blocks below the lowest gradient wanted are not visited.
void backward(Backend& backend, const Config& config, const Weights& weights, const Batch& batch,
              Acts& acts, const BackActs& scratch, Tensor d_out, const Grads& grads,
              const GradStream& stream, const PassHooks& hooks = {});

}  // namespace nibble
