// SPDX-License-Identifier: MIT
#include "serve/page/model_json.h"

#include <algorithm>
#include <thread>

#include "core/json.h"
#include "core/memory_info.h"
#include "core/version.h"
#include "inspect/inspect.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
using Basis = TensorReport::ErrorBasis;

constexpr int kMostInspectors = 4;  // threads; replies go on beside them

Json config_json(const Config& c) {
  return {{"layers", c.L},          {"hidden_size", c.C},
          {"query_heads", c.Hq},    {"key_value_heads", c.Hkv},
          {"head_size", c.D},       {"feed_forward", c.F},
          {"vocabulary", c.V},      {"positions", c.max_positions},
          {"tied_head", c.tied},    {"qk_norm", c.qk_norm},
          {"qkv_bias", c.qkv_bias}, {"parameters", c.parameter_count()}};
}

Json sample_json(const SampleOptions& s) {
  return {{"temperature", s.temperature},
          {"top_p", s.top_p},
          {"top_k", s.top_k},
          {"min_p", s.min_p},
          {"repetition_penalty", s.repetition_penalty}};
}

Json speed_json(const SchedulerCounts& c) {
  return {{"waiting", c.waiting},
          {"feeding", c.feeding},
          {"decoding", c.decoding},
          {"prompt_tokens", c.prompt_tokens},
          {"reused_tokens", c.reused_tokens},
          {"chosen_tokens", c.stepped},
          {"steps", c.steps},
          {"requests", c.ended()},
          {"first_token_seconds", c.first_token_s},
          {"request_seconds", c.request_s},
          {"cached_tokens", c.cached_tokens}};
}

// Of codes and scales alone it is an estimate; without the original there is nothing exact.
const char* basis_text(Basis basis) {
  switch (basis) {
    case Basis::none: return "none";
    case Basis::estimate: return "estimate";
    case Basis::embedding:
    case Basis::reference: return "exact";
  }
  return "none";
}

std::string device_text(const RunningModel& m) {
  const std::string first = m.runtime().backend->name();
  return m.replicas() == 1 ? first : fmt::format("{} x {}", m.replicas(), first);
}

Json tensor_json(const TensorReport& t) {
  Json j = {{"name", t.name},
            {"stored", t.stored},
            {"shape", t.shape},
            {"bytes", t.n_bytes},
            {"packed", t.packed}};
  if (t.has_values) {
    j["min"] = t.min;
    j["max"] = t.max;
    j["rms"] = t.rms;
  }
  if (t.has_values && t.packed) j["zero_codes"] = t.zero_codes;
  if (t.basis != Basis::none) {
    j["error"] = t.relative_rms;
    j["error_basis"] = basis_text(t.basis);
  }
  if (!t.problems.empty()) j["problems"] = t.problems;
  return j;
}

}  // namespace

Json model_json(const RunningModel& m) {
  const Runtime& rt = m.runtime();
  const SchedulerCounts now = m.counts();
  return {{"name", m.name()},
          {"created", m.model().created},  // another model may have had the name before
          {"file", rt.source->describe()},
          {"held", rt.model.summary},
          {"device", device_text(m)},
          {"compute", dtype_name(rt.compute)},
          {"config", config_json(rt.model.config)},
          {"sampling", sample_json(m.model().sample)},
          {"context", m.model().context},
          {"streams", m.streams() * int64_t(m.replicas())},
          {"can_chat", rt.tokenizer.has_value()},
          {"weights_bytes", rt.model.memory.capacity()},
          {"cache_bytes", m.cache().memory_bytes() * m.replicas()},
          {"cache_tokens", now.capacity},
          {"now", speed_json(now)}};
}

Json machine_json() {
  const MemoryInfo memory = system_memory();
  return {{"version", version_line()},
          {"resident_bytes", process_resident_bytes()},
          {"peak_bytes", process_peak_bytes()},
          {"total_bytes", memory.total_bytes},
          {"available_bytes", memory.available_bytes},
          {"processors", std::thread::hardware_concurrency()}};
}

Json tensors_json(const RunningModel& m) {
  InspectSettings settings;
  settings.config = &m.runtime().model.config;
  const int half = int(std::thread::hardware_concurrency() / 2);
  ThreadPool pool(std::clamp(half, 1, kMostInspectors));
  const InspectReport report = inspect_weights(*m.runtime().source, settings, pool);
  Json j = {{"name", m.name()},
            {"format", m.runtime().source->format()},
            {"stored_bytes", m.runtime().source->stored_bytes()},
            {"damaged", report.damaged()},
            {"tensors", Json::array()}};
  for (const TensorReport& t : report.tensors) j["tensors"].push_back(tensor_json(t));
  j["notes"] = report.notes;
  j["problems"] = report.problems;
  return j;
}

}  // namespace nibble
