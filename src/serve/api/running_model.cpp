// SPDX-License-Identifier: MIT
#include "serve/api/running_model.h"

#include <algorithm>
#include <ctime>

#include "core/error.h"
#include "core/memory_info.h"
#include "generate/kv_cache.h"
#include "runtime/model_template.h"
#include "serve/api/reply_form.h"

namespace nibble {
namespace {

constexpr int64_t kMostStreams = 16;  // where nothing is said
constexpr uint64_t kCacheBytes = uint64_t(1) << 30;

bool has_blocks(const Runtime& rt) { return rt.backend->traits().page_bytes > 0; }

}  // namespace

int64_t RunningModel::streams_of(const Runtime& rt, const ServeSettings& s) {
  if (s.streams) return *s.streams;
  if (has_blocks(rt)) return kMostStreams;
  const EngineOptions e = rt.engine_options(s.cache);
  const size_t each = KvCache::bytes(rt.model.config, e.context, e.cache);
  return std::clamp<int64_t>(int64_t(kCacheBytes / std::max<size_t>(1, each)), 1, kMostStreams);
}

// A pool only where not every stream can have its context: what is there from the beginning lies on
// huge pages.
EngineOptions RunningModel::engine_options(const Runtime& rt, const ServeSettings& s) {
  const int64_t streams = streams_of(rt, s);
  EngineOptions e = rt.engine_options(s.cache, streams);
  const uint64_t whole = KvCache::bytes(rt.model.config, e.context, e.cache);
  uint64_t most = uint64_t(streams) * whole;
  if (s.cache_bytes) {
    if (*s.cache_bytes < whole) {
      throw_usage(
          "--cache-mib {}: one context of {} tokens takes {}; a shorter --context needs less",
          *s.cache_bytes >> 20, e.context, format_bytes(whole));
    }
    most = *s.cache_bytes;
  } else if (!s.streams && has_blocks(rt)) {
    most = std::max(kCacheBytes, whole);
  }
  if (most < uint64_t(streams) * whole) {
    e.pool = int64_t(double(most) / double(whole) * double(e.context));
  }
  return e;
}

ServedModel RunningModel::describe(const Runtime& rt, const std::string& name,
                                   const ServeSettings& s, int64_t context) {
  ServedModel m;
  m.name = name;
  m.created = std::time(nullptr);
  m.tokenizer = rt.tokenizer;
  m.style = choose_template(s.chat_template, rt.paths.tokenizer);
  m.thinking = s.thinking;
  m.stop_ids = rt.stop_ids();
  m.forms = std::make_shared<ReplyForms>();
  m.sample = SampleFlags().over(rt.generation);
  m.context = context;
  m.timeout_s = s.timeout_s;
  return m;
}

uint64_t RunningModel::cache_bytes(const Runtime& rt, const ServeSettings& s) {
  const EngineOptions e = engine_options(rt, s);
  const int64_t tokens = e.pool > 0 ? e.pool : streams_of(rt, s) * e.context;
  return KvCache::bytes(rt.model.config, tokens, e.cache);
}

RunningModel::Replica::Replica(Runtime&& opened, const ServeSettings& s)
    : runtime(std::move(opened)),
      engine(*runtime.backend, runtime.model, engine_options(runtime, s), streams_of(runtime, s)),
      schedule(engine, s.schedule) {}

std::vector<std::unique_ptr<RunningModel::Replica>> RunningModel::make(
    std::vector<Runtime>&& opened, const ServeSettings& s) {
  std::vector<std::unique_ptr<Replica>> all;
  for (Runtime& r : opened) all.push_back(std::make_unique<Replica>(std::move(r), s));
  return all;
}

std::vector<Scheduler*> RunningModel::schedules() const {
  std::vector<Scheduler*> all;
  for (const auto& r : replicas_) all.push_back(&r->schedule);
  return all;
}

RunningModel::RunningModel(std::vector<Runtime> replicas, const std::string& name,
                           const ServeSettings& s)
    : replicas_(make(std::move(replicas), s)),
      model_(describe(runtime(), name, s, replicas_.front()->engine.options().context)),
      queue_(schedules(), model_.tokenizer, s.most_waiting),
      service_(model_, queue_) {
  for (const auto& r : replicas_) {
    model_.devices.push_back(device_name(r->runtime.device));
    threads_.push_back(std::make_unique<EngineThread>(r->schedule, queue_));
  }
}

namespace {

std::vector<Runtime> only(Runtime&& runtime) {
  std::vector<Runtime> one;
  one.push_back(std::move(runtime));
  return one;
}

}  // namespace

RunningModel::RunningModel(Runtime runtime, const std::string& name, const ServeSettings& s)
    : RunningModel(only(std::move(runtime)), name, s) {}

void RunningModel::end(std::chrono::milliseconds at_most) {
  if (threads_.empty()) return;
  queue_.drain(at_most);
  threads_.clear();
}

}  // namespace nibble
