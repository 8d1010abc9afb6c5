// SPDX-License-Identifier: MIT
// The weights a run is training, as a model that can be asked between two steps: views of the same
// memory, no second copy, nothing of the state is changed.
#pragma once
#include "model/load.h"
#include "train/state.h"

namespace nibble {

class InferenceView {
 public:
  // `state` must outlive it and stay where it is.
  explicit InferenceView(TrainState& state);
  InferenceView(const InferenceView&) = delete;
  InferenceView& operator=(const InferenceView&) = delete;

  // After updates, before the model is asked again. MemoryMode::remake keeps no NVFP4 head: the
  // view has one of its own, and this makes it anew.
  void refresh();
  const Model& model() const { return model_; }

  // What it takes beside the state.
  static size_t bytes(const Backend& backend, const Config& config, const TrainSettings& settings);

 private:
  TrainState& state_;
  Model model_;
};

}  // namespace nibble
