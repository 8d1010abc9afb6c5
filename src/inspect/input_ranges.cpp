// SPDX-License-Identifier: MIT
#include "inspect/input_ranges.h"

#include <algorithm>

#include "backend/recording_backend.h"
#include "core/error.h"
#include "core/progress.h"
#include "model/evaluate.h"
#include "model/params.h"
#include "quant/nvfp4.h"

namespace nibble {
namespace {

// What the wiring calls the input of a linear layer (model/decoder.cpp).
std::string_view input_of(ParamSlot slot) {
  switch (slot) {
    case ParamSlot::qkv: return "attn_norm";
    case ParamSlot::attn_out: return "attn";
    case ParamSlot::gate_up: return "ffn_norm";
    case ParamSlot::down: return "ffn_act";
    default: return {};
  }
}

}  // namespace

std::map<std::string, float> input_maxima(Runtime& runtime, std::span<const int64_t> ids,
                                          int64_t window) {
  std::map<std::string, float> by_note;
  RecordingBackend recording(*runtime.backend, [&](const Recorded& r) {
    float& most = by_note[r.name];
    most = std::max(most, absolute_maximum(r.values.data(), int64_t(r.values.size())));
  });
  Progress progress("calibrating", ids.size());
  for (size_t at = 0; at < ids.size(); at += size_t(window)) {
    const auto part = ids.subspan(at, std::min(size_t(window), ids.size() - at));
    evaluate(recording, runtime.model, part, {}, 1, int64_t(part.size()),
             {runtime.compute, DType::f32, Activations::none});
    progress.advance(part.size());
  }
  std::map<std::string, float> maxima;
  for (const ParamSpec& p : parameter_table(runtime.model.config)) {
    const std::string_view note = input_of(p.slot);
    if (note.empty() || !p.is_matrix()) continue;
    const auto it = by_note.find(fmt::format("layers.{}.{}", p.layer, note));
    if (it == by_note.end()) throw_internal("the inputs of {} were not seen", p.name);
    maxima[p.name] = it->second;
  }
  return maxima;
}

}  // namespace nibble
