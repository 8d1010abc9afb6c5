// SPDX-License-Identifier: MIT
// A decorator that hands every named intermediate of the wiring to a callback, as host floats. All
// ops go to the wrapped backend unchanged: recording shows the real run, not a copy of it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "backend/forwarding_backend.h"

namespace nibble {

struct Recorded {
  std::string name;  // "layers.3.attn_out", "logits"
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class RecordingBackend final : public ForwardingBackend {
 public:
  using Sink = std::function<void(Recorded)>;
  RecordingBackend(Backend& inner, Sink sink) : ForwardingBackend(inner), sink_(std::move(sink)) {}

 private:
  void do_note(std::string_view name, int64_t layer, Tensor value) override;
  Sink sink_;
};

}  // namespace nibble
