// SPDX-License-Identifier: MIT
#include "serve/api/running_model.h"

#include <algorithm>
#include <ctime>

#include "generate/kv_cache.h"
#include "runtime/model_template.h"
#include "serve/api/reply_form.h"

namespace nibble {
namespace {

constexpr int64_t kMostStreams = 16;  // where nothing is said
constexpr size_t kStreamsBytes = size_t(1) << 30;

}  // namespace

int64_t RunningModel::streams_of(const Runtime& rt, const ServeSettings& s) {
  if (s.streams) return *s.streams;
  const EngineOptions e = rt.engine_options(s.cache);
  const size_t each = KvCache::bytes(rt.model.config, e.context, e.cache);
  return std::clamp<int64_t>(int64_t(kStreamsBytes / std::max<size_t>(1, each)), 1, kMostStreams);
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
      engine_(*runtime_.backend, runtime_.model,
              runtime_.engine_options(s.cache, streams_of(runtime_, s)), streams_of(runtime_, s)),
      model_(describe(runtime_, name, s, engine_.options().context)),
      schedule_(engine_, model_.tokenizer, s.schedule),
      service_(model_, schedule_),
      thread_(std::make_unique<EngineThread>(schedule_)) {}

size_t RunningModel::cache_bytes() const {
  return KvCache::bytes(runtime_.model.config, streams() * model_.context, engine_.options().cache);
}

void RunningModel::end(std::chrono::milliseconds at_most) {
  if (!thread_) return;
  thread_->drain(at_most);
  thread_.reset();
}

}  // namespace nibble
