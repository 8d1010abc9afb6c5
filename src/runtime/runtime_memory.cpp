// SPDX-License-Identifier: MIT
#include "runtime/runtime_memory.h"

#include <algorithm>

#include "core/memory_info.h"

namespace nibble {
namespace {

// Tokens of cache that would fit, in a type of `bytes_per_token`.
int64_t tokens_that_fit(uint64_t available, const MemoryNeed& need, uint64_t bytes_per_token) {
  const uint64_t other = need.weights + need.workspace;
  if (available <= other || bytes_per_token == 0) return 0;
  return int64_t((available - other) / bytes_per_token);
}

std::string advice(const Backend& backend, uint64_t available, const MemoryNeed& need) {
  std::vector<std::string> help;
  const int64_t fits =
      std::min(need.context, tokens_that_fit(available, need, need.cache_per_token));
  if (fits > 0) help.push_back(fmt::format("--context {} would fit", fits));
  if (need.context > 0 && need.cache_type != DType::f8_e4m3) {
    const uint64_t fp8 = need.cache_per_token / dtype_bytes(need.cache_type);
    const int64_t more = std::min(need.context, tokens_that_fit(available, need, fp8));
    if (more > fits) {
      help.push_back(fmt::format("--kv-dtype fp8 makes room for {} tokens", more));
    }
  }
  if (fits == 0 && help.empty())
    help.push_back("a smaller model needs less (--recipe nvfp4 holds dense layers in 4 bits)");
  if (need.device == Device::cuda && !backend.memory_is_host()) {
    help.push_back("--device cpu uses the machine's own memory");
  }
  std::string text;
  for (const std::string& h : help) text += (text.empty() ? "" : "; ") + h;
  return text;
}

uint64_t activation_bytes(const Config& c, DType compute, int64_t tokens, int64_t outputs) {
  Arena measure("activations");
  make_acts(measure, c, {tokens, outputs, compute, DType::f32, Keep::none});
  return measure.peak();
}

}  // namespace

constexpr uint64_t kTables = uint64_t(4) << 20;  // ids, positions, rows: generously

int64_t gpu_chunk(const Config& c, DType compute, int64_t sequences) {
  const uint64_t step = activation_bytes(c, compute, sequences, sequences) + kTables;
  const uint64_t room = kGpuWorkspace - kGpuScratch - std::min(kGpuWorkspace - kGpuScratch, step);
  int64_t n = 2048;
  while (n > 128 && activation_bytes(c, compute, n, 1) > room) n /= 2;
  return n;
}

MemoryNeed memory_need(const Runtime& r, const std::optional<EngineOptions>& engine) {
  MemoryNeed n;
  n.device = r.device.kind;
  n.weights = weight_bytes(*r.backend, r.model.config, *r.source, r.load);
  if (engine) {
    n.context = engine->context;
    n.cache_type = engine->cache;
    set_cache(n, KvCache::bytes(r.model.config, engine->context, engine->cache));
  }
  if (r.device.kind == Device::cuda) {
    uint64_t workspace = kGpuWorkspace;
    if (engine) {  // a prompt in one piece, or in chunks larger than the plan's
      const int64_t at_once =
          engine->chunk > 0 ? std::min(engine->chunk, engine->context) : engine->context;
      workspace = std::max(workspace, kGpuScratch + kTables +
                                          activation_bytes(r.model.config, r.compute, at_once, 1));
    }
    // The backend holds a part of it already.
    n.workspace = workspace - std::min(workspace, r.backend->device_memory().bytes);
  }
  return n;
}

void set_cache(MemoryNeed& n, uint64_t bytes) {
  n.cache = bytes;
  n.cache_per_token = bytes / uint64_t(std::max<int64_t>(1, n.context));
}

void add_replica(MemoryNeed& n, const MemoryNeed& other, bool weights_too) {
  if (weights_too) n.weights += other.weights;
  n.cache += other.cache;
  n.cache_per_token += other.cache_per_token;
  n.workspace += other.workspace;
  ++n.replicas;
}

void check_fits(const Backend& backend, const MemoryNeed& need) {
  const uint64_t available = backend.available_memory();
  if (need.total() <= available) return;
  std::string parts = fmt::format("{} of weights", format_bytes(need.weights));
  if (need.context > 0) {
    parts += fmt::format(", {} of KV cache ({} tokens in {})", format_bytes(need.cache),
                         need.context, dtype_name(need.cache_type));
  }
  if (need.workspace > 0) parts += fmt::format(", {} of workspace", format_bytes(need.workspace));
  const std::string what =
      need.replicas == 1
          ? "the model does not fit: it needs"
          : fmt::format("{} replicas of the model do not fit beside each other: they need",
                        need.replicas);
  throw_device("{} {} ({}), but {} has {} available; {}", what, format_bytes(need.total()), parts,
               backend.name(), format_bytes(available), advice(backend, available, need));
}

}  // namespace nibble
