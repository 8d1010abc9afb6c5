// SPDX-License-Identifier: MIT
// Whether a model and its cache fit, asked before anything is loaded.
#pragma once
#include <cstdint>
#include <optional>

#include "runtime/runtime.h"

namespace nibble {

// What inference on a GPU takes at most beside weights and cache: scratch of the kernels,
// activations of one chunk, libraries.
constexpr uint64_t kGpuWorkspace = uint64_t(300) << 20;
// Of that, the CUDA backend's own scratch.
constexpr uint64_t kGpuScratch = uint64_t(128) << 20;
// Tokens of a prompt that go through the model at once on a GPU: as many as the rest of the
// workspace holds beside a step of `sequences` sequences, a power of two from 128 to 2048.
int64_t gpu_chunk(const Config& config, DType compute, int64_t sequences);

struct MemoryNeed {
  uint64_t weights = 0;
  uint64_t cache = 0, cache_per_token = 0;
  int64_t context = 0;   // tokens; 0: no cache is asked for
  int64_t replicas = 1;  // that are counted here
  DType cache_type = DType::bf16;
  uint64_t workspace = 0;
  Device::Kind device = Device::cpu;
  uint64_t total() const { return weights + cache + workspace; }
};

// Of a runtime whose model is not loaded yet.
MemoryNeed memory_need(const Runtime& runtime, const std::optional<EngineOptions>& engine);
// With a cache of so many bytes, which conversations of need.context tokens share.
void set_cache(MemoryNeed& need, uint64_t bytes);
// Of another on the same device. `weights_too`: it has weights of its own.
void add_replica(MemoryNeed& need, const MemoryNeed& other, bool weights_too);
// DeviceError that says what each part needs, what there is, and what would help.
void check_fits(const Backend& backend, const MemoryNeed& need);

}  // namespace nibble
