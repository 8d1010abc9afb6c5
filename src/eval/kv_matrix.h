// SPDX-License-Identifier: MIT
// Every way to feed a conversation through the KV cache, held against the plainest one: replay,
// which recomputes the whole sequence for each token.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "generate/engine.h"
#include "generate/sampler.h"

namespace nibble {

struct KvMatrixOptions {
  EngineOptions engine;               // context and chunk are chosen by the matrix
  std::vector<int64_t> chunks{3, 7};  // prompts are also fed in chunks of these sizes
  int64_t iterations = 3;
  int64_t max_tokens = 8;  // of each of the two replies
  SampleOptions sample;
  double max_logit_diff = 0;  // 0: logits must be equal bit for bit
};

struct KvCase {
  std::string name;  // "replay", "whole", "chunk-3", "token", "persistent-whole" ...
  int64_t iteration = 0;
  bool passed = false;
  double logit_diff = 0;  // largest over all compared steps; infinite where one is not finite
  std::string message;
};

struct KvMatrix {
  std::vector<KvCase> cases;  // one per case and iteration
  int64_t kinds = 0, iterations = 0;
  bool passed() const;
  double logit_diff() const;  // the largest
};

// Two turns: `first` is the rendered first prompt, `second` what follows the first reply. In the
// persistent cases the second turn is fed onto the first one's cache; in the others every turn
// starts from an empty cache with the whole conversation. One engine serves all cases, so slots
// hold what earlier ones left there. `on_case` sees each case as it ends; may be empty.
KvMatrix run_kv_matrix(Backend& backend, const Model& model, std::span<const int32_t> first,
                       std::span<const int32_t> second, const KvMatrixOptions& options,
                       const std::function<void(const KvCase&)>& on_case = {});

}  // namespace nibble
