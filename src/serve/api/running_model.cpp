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

RunningModel::RunningModel(Runtime runtime, const std::string& name, const ServeSettings& s)
    : runtime_(std::move(runtime)),
      engine_(*runtime_.backend, runtime_.model, engine_options(runtime_, s),
              streams_of(runtime_, s)),
      model_(describe(runtime_, name, s, engine_.options().context)),
      schedule_(engine_, model_.tokenizer, s.schedule),
      service_(model_, schedule_),
      thread_(std::make_unique<EngineThread>(schedule_)) {}

void RunningModel::end(std::chrono::milliseconds at_most) {
  if (!thread_) return;
  thread_->drain(at_most);
  thread_.reset();
}

}  // namespace nibble
