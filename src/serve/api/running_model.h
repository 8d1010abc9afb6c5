// SPDX-License-Identifier: MIT
// A model that answers: opened on one device or several, each with its cache, its schedule and the
// thread that runs it, behind one queue.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "serve/api/served_model.h"
#include "serve/api/service.h"
#include "serve/schedule/engine_thread.h"

namespace nibble {

struct ServeSettings {
  CacheOptions cache;
  // Replies at a time of each replica; unset: 16 that share 1 GiB of cache, or as many as it holds
  // contexts where the backend has no cache in blocks.
  std::optional<int64_t> streams;
  // Of each replica's cache, at most, which streams share in blocks; unset: with `streams` a
  // context for each.
  std::optional<uint64_t> cache_bytes;
  SchedulerOptions schedule;
  int64_t most_waiting = RequestQueue::kMostWaiting;
  std::string chat_template;  // a name or a file; empty: the model's own
  std::optional<bool> thinking;
  double timeout_s = 0;
};

class RunningModel {
 public:
  // `replicas`: of open_replicas, the first of which is the model to look at.
  RunningModel(std::vector<Runtime> replicas, const std::string& name,
               const ServeSettings& settings);
  RunningModel(Runtime runtime, const std::string& name, const ServeSettings& settings);
  RunningModel(const RunningModel&) = delete;
  RunningModel& operator=(const RunningModel&) = delete;

  // Of the cache of a replica that is prepared.
  static uint64_t cache_bytes(const Runtime& runtime, const ServeSettings& settings);

  const std::string& name() const { return model_.name; }
  const Runtime& runtime() const { return replicas_.front()->runtime; }
  const ServedModel& model() const { return model_; }
  SchedulerCounts counts() const { return queue_.counts(); }
  const Service& service() const { return service_; }
  size_t replicas() const { return replicas_.size(); }
  // Of each replica.
  int64_t streams() const { return replicas_.front()->engine.sequences(); }
  const KvCache& cache() const { return replicas_.front()->engine.cache(); }

  // Takes no more requests and gives those that run `at_most`; what is left ends with an error.
  void end(std::chrono::milliseconds at_most);

 private:
  static EngineOptions engine_options(const Runtime& runtime, const ServeSettings& settings);
  static int64_t streams_of(const Runtime& runtime, const ServeSettings& settings);
  static ServedModel describe(const Runtime& runtime, const std::string& name,
                              const ServeSettings& settings, int64_t context);

  struct Replica {
    Replica(Runtime&& opened, const ServeSettings& settings);
    Runtime runtime;
    BatchEngine engine;
    Scheduler schedule;
  };
  static std::vector<std::unique_ptr<Replica>> make(std::vector<Runtime>&& opened,
                                                    const ServeSettings& settings);
  std::vector<Scheduler*> schedules() const;

  std::vector<std::unique_ptr<Replica>> replicas_;
  ServedModel model_;
  RequestQueue queue_;
  Service service_;
  std::vector<std::unique_ptr<EngineThread>> threads_;
};

}  // namespace nibble
