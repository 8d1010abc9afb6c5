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
  std::optional<int64_t>
      streams;  // replies at a time; unset: what 1 GiB of cache holds, 16 at most
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
  size_t cache_bytes() const;

  // Takes no more requests and gives those that run `at_most`; what is left ends with an error.
  void end(std::chrono::milliseconds at_most);

 private:
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
