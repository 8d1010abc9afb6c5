// SPDX-License-Identifier: MIT
#include "runtime/replicas.h"

#include <algorithm>

#include "convert/checkpoint_model.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "runtime/runtime_memory.h"

namespace nibble {
namespace {

int32_t total_threads(const RuntimeOptions& o) {
  return o.threads > 0 ? o.threads : default_thread_count();
}

// The i-th of n gets its share of the threads, one at least.
int32_t share_of(int32_t all, size_t i, size_t n) {
  return std::max<int32_t>(1, all / int32_t(n) + (int32_t(i) < all % int32_t(n)));
}

bool shares_weights(const Runtime& r, const Runtime& first) {
  return &r != &first && r.backend->memory_is_host();
}

void check_all_fit(const std::vector<Runtime>& all, const CacheOptions* cache,
                   const CacheBytes& cache_bytes) {
  std::vector<bool> counted(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (counted[i]) continue;
    std::optional<MemoryNeed> need;
    for (size_t k = i; k < all.size(); ++k) {
      if (!(all[k].device == all[i].device)) continue;
      counted[k] = true;
      std::optional<EngineOptions> engine;
      if (cache) engine = all[k].engine_options(*cache);
      MemoryNeed n = memory_need(all[k], engine);
      if (cache_bytes) set_cache(n, cache_bytes(all[k]));
      if (need) {
        add_replica(*need, n, !shares_weights(all[k], all[0]));
      } else {
        need = n;
      }
    }
    check_fits(*all[i].backend, *need);
  }
}

void load_all(std::vector<Runtime>& all) {
  for (Runtime& r : all) {
    if (shares_weights(r, all[0])) {
      const Model& m = all[0].model;  // views of the same memory
      r.model = {m.config, m.weights, Arena("weights"), m.summary};
    } else {
      load_runtime(r);
    }
  }
}

// `on`: the backend of another model that is there.
Runtime prepare(const RuntimeOptions& o, const ModelPaths& paths, std::shared_ptr<Backend> on) {
  auto source = open_weights(paths.weights);
  return prepare_runtime(o, paths, std::move(source), std::move(on));
}

}  // namespace

std::vector<Runtime> open_replicas(const RuntimeOptions& options, TokenizerNeed need,
                                   const CacheOptions* cache, const CacheBytes& cache_bytes) {
  const size_t n = options.device.beside.size() + 1;
  ModelPaths paths = resolve_model(options.model, need);
  std::vector<Runtime> all;
  for (size_t i = 0; i < n; ++i) {
    RuntimeOptions o = options;
    if (i > 0) o.device = options.device.beside[i - 1];
    if (n > 1) o.threads = share_of(total_threads(options), i, n);
    all.push_back(prepare(o, paths, nullptr));
    paths.tokenizer.clear();
  }
  check_all_fit(all, cache, cache_bytes);
  load_all(all);
  if (n > 1 && all[0].backend->memory_is_host())
    log_info("{} replicas of it share its weights and {} threads", n, total_threads(options));
  return all;
}

std::vector<Runtime> open_beside(const std::vector<Runtime>& first, const RuntimeOptions& options,
                                 TokenizerNeed need) {
  ModelPaths paths = resolve_model(options.model, need);
  std::vector<Runtime> all;
  for (const Runtime& r : first) {
    RuntimeOptions o = options;
    o.device = r.device;
    all.push_back(prepare(o, paths, r.backend));
    paths.tokenizer.clear();
  }
  check_all_fit(all, nullptr, {});
  load_all(all);
  return all;
}

}  // namespace nibble
