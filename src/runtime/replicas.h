// SPDX-License-Identifier: MIT
// One model on several devices, each of which answers by itself.
#pragma once
#include <functional>
#include <vector>

#include "runtime/runtime.h"

namespace nibble {

// How large the cache of a replica will be, of one that is prepared.
using CacheBytes = std::function<uint64_t(const Runtime&)>;

// The model on every one of options.device, in this order; alike, so that it does
// not matter who answers. Copies on the CPU share its threads between them, and the weights of the
// first, which outlives the others; only the first has a tokenizer. The memory of all is asked for
// before anything is loaded: with `cache` a context each, or what `cache_bytes` says.
std::vector<Runtime> open_replicas(const RuntimeOptions& options, TokenizerNeed need,
                                   const CacheOptions* cache = nullptr,
                                   const CacheBytes& cache_bytes = {});

// A second model on the backends of the first, so that ops can compare what the two say.
std::vector<Runtime> open_beside(const std::vector<Runtime>& first, const RuntimeOptions& options,
                                 TokenizerNeed need);

}  // namespace nibble
