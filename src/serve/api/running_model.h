// SPDX-License-Identifier: MIT
// A model that answers: opened, with its cache, its schedule and the thread that runs it.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/runtime.h"
#include "serve/api/served_model.h"
#include "serve/api/service.h"
#include "serve/schedule/engine_thread.h"

namespace nibble {

struct ServeSettings {
  CacheOptions cache;
  // Replies at a time; unset: 16 that share 1 GiB of cache, or as many as it holds contexts where
  // the backend has no cache in blocks.
  std::optional<int64_t> streams;
  // Of the cache, at most, which streams share in blocks; unset: with `streams` a context for each.
  std::optional<uint64_t> cache_bytes;
  SchedulerOptions schedule;
  std::string chat_template;  // a name or a file; empty: the model's own
  std::optional<bool> thinking;
  double timeout_s = 0;
};

class RunningModel {
 public:
  RunningModel(Runtime runtime, const std::string& name, const ServeSettings& settings);
  RunningModel(const RunningModel&) = delete;
  RunningModel& operator=(const RunningModel&) = delete;

  const std::string& name() const { return model_.name; }
  const Runtime& runtime() const { return runtime_; }
  const ServedModel& model() const { return model_; }
  const Scheduler& schedule() const { return schedule_; }
  const Service& service() const { return service_; }
  int64_t streams() const { return engine_.sequences(); }
  const KvCache& cache() const { return engine_.cache(); }

  // Takes no more requests and gives those that run `at_most`; what is left ends with an error.
  void end(std::chrono::milliseconds at_most);

 private:
  static EngineOptions engine_options(const Runtime& runtime, const ServeSettings& settings);
  static int64_t streams_of(const Runtime& runtime, const ServeSettings& settings);
  static ServedModel describe(const Runtime& runtime, const std::string& name,
                              const ServeSettings& settings, int64_t context);

  Runtime runtime_;
  BatchEngine engine_;
  ServedModel model_;
  Scheduler schedule_;
  Service service_;
  std::unique_ptr<EngineThread> thread_;
};

}  // namespace nibble
